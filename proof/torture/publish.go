package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/proof/matrix"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// The matrix is between these marks.
const (
	begin = "<!-- matrix: written by make matrix -->\n"
	end   = "<!-- end of the matrix -->\n"
)

// publish replaces the text between the marks of file by the table, and names the command that made
// it. With keep, the cells that were there stay, unless the table has newer ones.
func publish(file, by string, keep bool, table *matrix.Table) error {
	if len(table.Cells()) == 0 {
		return errors.New("no test has reported a cell")
	}
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, _ := bytes.Cut(page, []byte(begin))
	old, after, closed := bytes.Cut(rest, []byte(end))
	if !closed { // it is false as well if the first mark is missing
		return fmt.Errorf("%s has no marks for the matrix", file)
	}
	var text bytes.Buffer
	if header, cells, _ := strings.Cut(string(old), "\n\n"); keep {
		if err := table.Keep(cells); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		text.WriteString(header + "\nSome cells are newer. ")
	}
	fmt.Fprintf(&text, "Made on %s with %s, %s, %d CPUs, by `%s`.\n\n",
		time.Now().UTC().Format(time.DateOnly), runtime.Version(), serverVersions(), runtime.NumCPU(), by)
	if err := table.Markdown(&text); err != nil {
		return err
	}
	return os.WriteFile(file, bytes.Join([][]byte{before, []byte(begin), text.Bytes(), []byte(end), after}, nil), 0o644)
}

// serverVersions returns the versions of the servers that are installed.
func serverVersions() string {
	found := []string{"no redis-server"}
	switch server, version, err := redistest.Version(); {
	case err != nil:
	case server == "Redis":
		found[0] = "redis-server " + version
	default:
		found[0] = server + " " + version
	}
	if out, err := exec.Command("psql", "--version").Output(); err == nil { // "psql (PostgreSQL) 15.1 (…)"
		if fields := strings.Fields(string(out)); len(fields) > 2 {
			found = append(found, "PostgreSQL "+fields[2])
		}
	}
	return strings.Join(found, ", ")
}
