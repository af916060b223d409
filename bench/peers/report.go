package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/lockstep-go/lockstep/proof/stamp"
)

// A report is the result of a case.
type report struct {
	tables []*table
	charts []chart
	musts  []must

	headlines []headline
}

func (r *report) markdown() string {
	var parts []string
	for _, t := range r.tables {
		parts = append(parts, t.markdown())
	}
	for _, c := range r.charts {
		if c.empty() {
			continue
		}
		parts = append(parts, fmt.Sprintf("![%s](performance/%s.svg)\n", c.title(), c.file))
	}
	if len(r.musts) > 0 {
		parts = append(parts, musts(r.musts))
	}
	return strings.Join(append(parts, r.options()), "\n")
}

// options lists the options of each contender once.
func (r *report) options() string {
	var s strings.Builder
	s.WriteString("Options:\n\n")
	told := map[string]bool{}
	for _, t := range r.tables {
		for _, row := range t.rows {
			if !told[row.name] {
				told[row.name] = true
				fmt.Fprintf(&s, "- %s: %s\n", row.name, row.options)
			}
		}
	}
	return s.String()
}

// draw puts the charts into a folder beside the page, with the name of the page.
func (r *report) draw(page string) error {
	dir := strings.TrimSuffix(page, filepath.Ext(page))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, c := range r.charts {
		if c.empty() {
			continue
		}
		if err := c.draw(filepath.Join(dir, c.file+".svg")); err != nil {
			return err
		}
	}
	return nil
}

// introduction describes the machine, the server and the versions.
func (b *bench) introduction() (string, error) {
	info, err := b.admins[0].InfoMap(context.Background(), "server").Result()
	if err != nil {
		return "", err
	}
	var s strings.Builder
	s.WriteString(b.made() + "\n")
	model, cpus := processors()
	fmt.Fprintf(&s, "- machine: %s, %d CPUs, %s\n", model, cpus, info["Server"]["os"])
	fmt.Fprintf(&s, "- redis-server %s, on loopback, without persistence\n", info["Server"]["redis_version"])
	fmt.Fprintf(&s, "- %s", runtime.Version())
	for _, m := range versions() {
		fmt.Fprintf(&s, ", %s", m)
	}
	fmt.Fprintf(&s, "\n- the TTL is %v where nothing else is said\n", ttl)
	return s.String(), nil
}

// made is the line that says when and how the figures were made.
func (b *bench) made() string {
	where := "where the kernel puts them"
	if b.pinned {
		where = "on a CPU each"
	}
	return fmt.Sprintf("%v, by `cd bench && go run ./peers%s`: %d repetitions, client and servers %s.\n",
		stamp.Now("..", stamp.Measured...), b.flags(), b.repeat, where)
}

func (b *bench) flags() string {
	var s strings.Builder
	if b.short {
		s.WriteString(" -short")
	} else {
		fmt.Fprintf(&s, " -repeat %d -rounds %d -turn %v", b.repeat, b.rounds, b.turn)
		if !b.pinned {
			s.WriteString(" -pin=false")
		}
	}
	if len(b.only) > 0 {
		s.WriteString(" -case " + strings.Join(b.only, ","))
	}
	return s.String()
}

// versions are the built-in versions of the contenders.
func versions() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return []string{"versions unknown"}
	}
	var all []string
	for _, m := range info.Deps {
		switch m.Path {
		case "github.com/redis/go-redis/v9", "github.com/redis/rueidis", "github.com/go-redsync/redsync/v4", "github.com/bsm/redislock":
			if m.Replace != nil {
				m = m.Replace
			}
			all = append(all, strings.TrimPrefix(m.Path, "github.com/")+" "+m.Version)
		}
	}
	slices.Sort(all)
	return all
}

// processors are the CPUs of the machine, even if this process may use only one of them.
func processors() (model string, n int) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH, runtime.NumCPU()
	}
	for line := range strings.Lines(string(text)) {
		switch name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) {
		case "processor":
			n++
		case "model name":
			model = strings.TrimSpace(value)
		}
	}
	return cmp.Or(model, runtime.GOARCH), n
}
