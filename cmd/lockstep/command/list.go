package command

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// everything is more than a store can have listed in a while.
const everything = 100_000

// found is a key in a list, in one store or several.
type found struct {
	backends.KeyState
	node string
}

// list returns the keys that begin with prefix, sorted, at most limit of each store.
func (c *cli) list(ctx context.Context, stores []*Store, prefix string, limit int) (all []found, err error) {
	errs := make([]error, len(stores))
	for i, s := range stores {
		var keys []backends.KeyState
		keys, errs[i] = c.listOne(ctx, s, prefix, limit)
		for _, k := range keys {
			all = append(all, found{k, nodeName(stores, i)})
		}
	}
	slices.SortFunc(all, func(a, b found) int {
		if n := strings.Compare(a.Key, b.Key); n != 0 {
			return n
		}
		return strings.Compare(a.node, b.node)
	})
	return all, c.enough(stores, errs)
}

func (c *cli) listOne(ctx context.Context, s *Store, prefix string, limit int) (all []backends.KeyState, err error) {
	lister, ok := s.Backend.(backends.Lister)
	if !ok {
		return nil, usage("%s does not list its locks", s.Name)
	}
	seen := map[string]bool{} // a key may be told twice
	for after, first := "", true; (after != "" || first) && len(all) < limit; first = false {
		page, err := c.pageOf(ctx, s, lister, prefix, after)
		if err != nil {
			return all, err
		}
		for _, k := range page.Keys {
			if !seen[k.Key] && len(all) < limit {
				seen[k.Key] = true
				all = append(all, k)
			}
		}
		after = page.Next
	}
	return all, nil
}

// pageOf is page. Without any prefix it passes over what has not the form of a lock.
func (c *cli) pageOf(ctx context.Context, s *Store, l backends.Lister, prefix, after string) (backends.Page, error) {
	if prefix != "" || c.prefix != "" || s.ListOwn == nil {
		return c.page(ctx, s, l, prefix, after)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	page, others, err := s.ListOwn(ctx, after, backends.MaxPage)
	c.others += others
	return page, c.told(err)
}

func (c *cli) page(ctx context.Context, s *Store, l backends.Lister, prefix, after string) (backends.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	page, err := l.List(ctx, prefix, after, backends.MaxPage)
	if err != nil && prefix == "" && exitCode(err) == exitUsage {
		err = usage("%s has other keys beside its locks: give -prefix", s.Name)
	}
	return page, c.told(err)
}

func listCommand() *command {
	return &command{
		name: "list", args: "[FLAGS]", summary: "list the locks that are held",
		text: `In a store whose locks lie beside other data (Redis), a key alone does not tell a lock from a cache entry. Without
a -prefix, the keys whose values have the form of a lock of Lockstep are listed, and the others are counted. With a
-prefix, locks of other software are listed too. In both cases it looks at all keys of the server.

For how long a lock has been held is known only if its grants are numbered by the clock of the store, as run and
package fenced do it. It is then shown as an upper limit, since the last number of a key may be older than the
hold.`,
		example: []example{{"lockstep list", ""}, {"lockstep list -prefix invoice/", ""}, {"lockstep list -held-over 10m -json -prefix invoice/", "those that are held for suspiciously long"}},
		exits:   asking,
		setup: func(c *cli, fs *flag.FlagSet) func(context.Context, []string) error {
			limit := fs.Int("limit", 100, "at most so many (`number`)")
			prefix := fs.String("prefix", "", "only locks that begin with `text`")
			var heldOver time.Duration
			fs.Var(seconds{&heldOver}, "held-over", "only those that are held for longer than `duration`, as far as the store tells")
			return func(ctx context.Context, _ []string) error {
				if *limit < 1 {
					return usage("-limit %d is not possible: use 1 or more", *limit)
				}
				stores, err := c.open(ctx, 0)
				if err != nil {
					return err
				}
				defer shut(stores)
				enough := *limit + 1 // tells that there are more
				if heldOver > 0 {
					enough = everything
				}
				all, err := c.list(ctx, stores, *prefix, enough)
				if err != nil {
					return err
				}
				if c.others > 0 {
					defer c.say("passed over, since they have not the form of a lock of Lockstep: %s; -prefix shows locks of other software", count(c.others, "key"))
				}
				untold := 0
				all = slices.DeleteFunc(all, func(f found) bool {
					age, told := c.heldAtMost(f.State)
					if heldOver > 0 && !told && f.Holding > 0 {
						untold++
					}
					return heldOver > 0 && (!told || age < heldOver)
				})
				if untold > 0 {
					c.say("left out, since their store does not tell since when they are held: %d", untold)
				}
				if len(all) > *limit {
					all = all[:*limit]
					defer c.say("there are more than %d: see -limit", *limit)
				}
				if c.json {
					for _, f := range all {
						if err := c.print(c.out, c.asJSON(f.Key, f.node, f.State)); err != nil {
							return err
						}
					}
					return nil
				}
				none := "no lock is held"
				if heldOver > 0 || *prefix != "" {
					none = "no lock that is held matches"
				}
				c.table(c.out, all, 0, none, nil)
				return nil
			}
		},
	}
}

// counted is a number, or "?" if the store can't tell it.
func counted(n int) string {
	if n == backends.NotKnown {
		return "?"
	}
	return strconv.Itoa(n)
}

// table writes a line for each key, at most width wide; 0: any. Without a key it writes the text none.
// since tells since when a print has been seen.
func (c *cli) table(w io.Writer, all []found, width int, none string, since map[string]time.Time) {
	if len(all) == 0 {
		put(w, "%s\n", none)
		return
	}
	rows := [][]string{{"LEFT", "HELD", "WAIT", "HOLDER", "LOCK"}}
	for _, f := range all {
		left, held, holder := "-", "-", "-"
		if age, ok := c.heldAtMost(f.State); ok {
			held = "≤" + shortly(age)
		}
		switch {
		case len(f.Holds) > 0:
			h := f.Holds[len(f.Holds)-1] // it ends last
			left, holder = shortly(h.Left), who(h)
			if t, ok := since[h.Print]; ok && held == "-" {
				held = "≥" + shortly(time.Since(t))
			}
			if f.Holding > 1 {
				holder += fmt.Sprintf(" and %d more", f.Holding-1)
			}
		case f.Reserved > 0:
			holder = "reserved"
		case f.Foreign:
			left, holder = "ever", "other software"
		}
		key := printable(f.Key)
		if f.node != "" {
			key += "  on " + f.node
		}
		rows = append(rows, []string{left, held, counted(f.Waiting), holder, key})
	}
	widths := make([]int, 4)
	for _, row := range rows {
		for i := range widths {
			widths[i] = max(widths[i], len([]rune(row[i])))
		}
	}
	if width > 0 {
		widths[3] = max(min(widths[3], width-widths[0]-widths[1]-widths[2]-3*2-24), 6) // 24 for the lock
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			if i < len(widths) {
				cell = clip(cell, widths[i])
				line.WriteString(cell + strings.Repeat(" ", widths[i]-len([]rune(cell))+2))
			} else {
				line.WriteString(cell)
			}
		}
		text := line.String()
		if width > 0 {
			text = clip(text, width)
		}
		put(w, "%s\n", text)
	}
}

// clip is text in at most width characters.
func clip(text string, width int) string {
	if r := []rune(text); len(r) > width {
		return string(r[:max(width-1, 0)]) + "…"
	}
	return text
}
