package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/lockstep-go/lockstep/proof/matrix"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/stamp"
)

// head is what the artefact says before its figures.
//
//go:embed head.md
var head string

// begin follows the head of the artefact. What is behind it is written by this program alone.
const begin = "\n<!-- the matrix -->\n"

// marks enclose a part of docs/matrix.md.
func marks(where string) (begin, end string) {
	return "<!-- matrix: " + where + ", written by make matrix -->\n", "<!-- end of " + where + " -->\n"
}

// made is the line that says when, at which commit, with what and by which command figures were made.
func made(by string) string {
	return fmt.Sprintf("%v, with %s, by `%s`.\n", stamp.Now(".", stamp.Measured...), versions(), by)
}

var errNoCells = errors.New("no test has reported a cell")

// keep writes the whole table into a file. With kept, the cells that are there stay, unless the table
// has newer ones.
func keep(file, made string, kept bool, table *matrix.Table) error {
	if len(table.Cells()) == 0 {
		return errNoCells
	}
	var text strings.Builder
	text.WriteString(head + begin)
	old, err := os.ReadFile(file)
	switch {
	case err == nil && kept:
		_, written, found := strings.Cut(string(old), begin)
		header, cells, closed := strings.Cut(written, "\n\n")
		if !found || !closed {
			return fmt.Errorf("%s is no matrix: move it away", file)
		}
		if err := table.Keep(cells); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		text.WriteString(header + "\nSome cells are newer. ")
	case err != nil && !os.IsNotExist(err):
		return err
	}
	text.WriteString(made + "\n")
	if err := table.Markdown(&text); err != nil {
		return err
	}
	return write(file, text.String())
}

// publish replaces the parts of a page of which the table has all cells, and says which it leaves.
func publish(out io.Writer, file, made string, table *matrix.Table) error {
	if len(table.Cells()) == 0 {
		return errNoCells
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	page := string(text)
	for _, p := range matrix.Parts {
		begin, end := marks(p.Where)
		before, rest, found := strings.Cut(page, begin)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			return fmt.Errorf("%s has no marks for the cells of %s", file, p.Where)
		}
		shown, has, of, err := table.Show(p)
		if err != nil {
			return err
		}
		if has < of {
			if has > 0 {
				if _, err := fmt.Fprintf(out, "%s keeps its older cells of %s: this run made %d of the %d that it shows\n", file, p.Where, has, of); err != nil {
					return err
				}
			}
			continue
		}
		page = before + begin + made + "\n" + shown + end + after
	}
	return os.WriteFile(file, []byte(page), 0o644)
}

// write also makes the folder of the file.
func write(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

var number = regexp.MustCompile(`\d+\.\d[\w.]*`)

// libraries is the line of the artefact about the client libraries and embedded servers.
func libraries() string { return "Libraries: " + stamp.Versions(".") + ".\n" }

// embedded are the servers that the tests have in their own process or build themselves, each with the
// module that it is and a file which requires that.
var embedded = []struct{ name, module, file string }{
	{"etcd", "go.etcd.io/etcd/server/v3 v", "bench/go.mod"},
	{"NATS", "github.com/nats-io/nats-server/v2 v", "backends/natsstore/go.mod"},
}

// versions are those of Go and of the servers, installed or embedded.
func versions() string {
	found := []string{runtime.Version(), "no redis-server"}
	switch server, version, err := redistest.Version(); {
	case err != nil:
	case server == "Redis":
		found[1] = "redis-server " + version
	default:
		found[1] = server + " " + version
	}
	if out, err := exec.Command("psql", "--version").Output(); err == nil {
		found = append(found, "PostgreSQL "+number.FindString(string(out)))
	}
	// With MYSQL=yes the folder that comes first in PATH has MySQL under this name. Debian has MariaDB outside of PATH.
	for _, program := range []string{"mariadbd", "/usr/sbin/mariadbd"} {
		out, err := exec.Command(program, "--version").Output()
		if err != nil {
			continue
		}
		name := "MySQL "
		if strings.Contains(string(out), "MariaDB") {
			name = "MariaDB "
		}
		found = append(found, name+number.FindString(string(out)))
		break
	}
	for _, e := range embedded {
		text, err := os.ReadFile(e.file)
		if err != nil {
			continue
		}
		if _, version, ok := strings.Cut(string(text), e.module); ok {
			found = append(found, e.name+" "+number.FindString(version))
		}
	}
	return strings.Join(found, ", ")
}
