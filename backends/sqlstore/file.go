package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"

	"github.com/lockstep-go/lockstep/backends"
)

// A file is the database file of SQLite as the store first saw it. A connection stays with the file that
// it has opened, also when that has been deleted or moved, or another one was put in its place. Programs that
// start later open the other one, and get the locks that are held in the first. So every call that takes or
// renews a lock looks whether the name still leads to the file: one stat.
type file struct {
	at    *place
	mu    sync.Mutex
	known bool
	path  string      // empty: the database is in memory
	first os.FileInfo // nil: there is nothing to compare
}

// stays is an error if the name leads elsewhere. on is a connection to the file.
func (f *file) stays(ctx context.Context, on Executor) error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known {
		return f.find(ctx, on)
	}
	if f.first == nil {
		return nil
	}
	now, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fileMoved{f.path, "deleted or moved"}
	case err != nil:
		return backends.NotSent(err)
	case !os.SameFile(f.first, now):
		return fileMoved{f.path, "replaced"}
	}
	return nil
}

// find keeps the file for later. Where its name leads to nothing, as with a file system of the driver's
// own, nothing is compared.
func (f *file) find(ctx context.Context, on Executor) error {
	if err := on.Row(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'", nil, &f.path); err != nil {
		return err
	}
	f.at.addr.Store(cmp.Or(f.path, inMemory))
	if f.path != "" {
		f.first, _ = os.Stat(f.path)
	}
	if f.first != nil {
		if err := alone(f.path, f.first); err != nil {
			return err
		}
	}
	f.known = true
	return nil
}

// alone is an error if programs may have the file under several names. -wal and -shm, with the locks of
// SQLite, lie beside the name. A name that is added later is refused to the program that uses it. SQLite
// follows a symbolic link.
func alone(path string, info os.FileInfo) error {
	if links := field(reflect.ValueOf(info.Sys()), "Nlink"); links.CanUint() && links.Uint() > 1 { // not on Windows
		return severalNames{path, fmt.Sprintf("has %d names (hard links)", links.Uint()), "remove the others"}
	}
	if target, err := filepath.EvalSymlinks(path); err == nil && isMountPoint(target) {
		return severalNames{path, "is mounted by itself, so that elsewhere it has another name", "mount its folder instead"}
	}
	return nil
}

// isMountPoint tells whether a file is mounted, as into a container. Linux alone tells it.
func isMountPoint(path string) bool {
	text, _ := os.ReadFile(mounts)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && unescaped.Replace(fields[4]) == path {
			return true
		}
	}
	return false
}

// unescaped are the characters that mounts has in octal.
var (
	mounts    = "/proc/self/mountinfo"
	unescaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
)

// severalNames says that other programs may have the file under another name.
type severalNames struct{ path, why, then string }

func (e severalNames) Error() string {
	return fmt.Sprintf("the database file %s %s, and its locks exclude only programs that open it by one name: %s", e.path, e.why, e.then)
}

// Permanent is true.
func (severalNames) Permanent() bool { return true }

// ErrorType is invalid.
func (severalNames) ErrorType() string { return "invalid" }

// fileMoved says that the connections lead to a file that others no longer find.
type fileMoved struct{ path, how string }

func (e fileMoved) Error() string {
	return fmt.Sprintf("the database file %s was %s while this program had it open, so its locks exclude nobody who opens it now: restart the program", e.path, e.how)
}

// Permanent is true: the connections stay with the file.
func (fileMoved) Permanent() bool { return true }

// ErrorType is file_moved.
func (fileMoved) ErrorType() string { return "file_moved" }
