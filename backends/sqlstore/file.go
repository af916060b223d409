package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
	f.known = true
	f.at.addr.Store(cmp.Or(f.path, inMemory))
	if f.path != "" {
		f.first, _ = os.Stat(f.path)
	}
	return nil
}

// fileMoved says that the connections lead to a file that others no longer find.
type fileMoved struct{ path, how string }

func (e fileMoved) Error() string {
	return fmt.Sprintf("the database file %s was %s while this program had it open, so its locks exclude nobody who opens it now: restart the program", e.path, e.how)
}

// Permanent is true: the connections stay with the file.
func (fileMoved) Permanent() bool { return true }

// ErrorType is file_moved.
func (fileMoved) ErrorType() string { return "file_moved" }
