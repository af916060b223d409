package dialects_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// A program goes on with a file that is no longer there, and the next one makes another file and gets the
// lock. The first must learn of it at its next renewal.
func TestALockIsLostWithTheFileOfSQLite(t *testing.T) {
	for name, move := range map[string]func(t *testing.T, path string){
		"deleted": func(t *testing.T, path string) {
			t.Helper()
			for _, part := range []string{"", "-wal", "-shm"} {
				if err := os.Remove(path + part); err != nil {
					t.Fatal(err)
				}
			}
		},
		"moved": func(t *testing.T, path string) {
			t.Helper()
			for _, part := range []string{"", "-wal", "-shm"} {
				if err := os.Rename(path+part, path+".old"+part); err != nil {
					t.Fatal(err)
				}
			}
		},
		"replaced by a backup": func(t *testing.T, path string) {
			t.Helper()
			db := sqlite.dial(t, "file:"+path+".backup")
			if err := sqlite.install(t.Context(), db.DB); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(db.Close(), os.Remove(path+"-wal"), os.Remove(path+"-shm"), os.Rename(path+".backup", path)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "locks.db")
			first := sqlite.dial(t, "file:"+path+"?_pragma=busy_timeout(10000)")
			if err := sqlite.install(t.Context(), first.DB); err != nil {
				t.Fatal(err)
			}
			store := first.store()
			mustSet(t, store, "key", "mine", time.Hour)
			if r, err := store.Enter(t.Context(), "permits", "mine", time.Hour, backends.Admission{}); err != nil || !r.OK {
				t.Fatalf("Enter = %+v, %v", r, err)
			}
			if ok, err := store.ExpireIf(t.Context(), "key", "mine", time.Hour); !ok || err != nil {
				t.Fatalf("ExpireIf = %v, %v", ok, err)
			}
			move(t, path)
			if name == "moved" {
				wantMoved(t, "SetNX before there is another file", set(t, store, "other"))
			}
			second := sqlite.dial(t, "file:"+path+"?_pragma=busy_timeout(10000)")
			if err := sqlite.install(t.Context(), second.DB); err != nil {
				t.Fatal(err)
			}
			mustSet(t, second.store(), "key", "theirs", time.Hour) // what nobody can keep it from

			for call, ok := range map[string]func() (bool, error){
				"ExpireIf": func() (bool, error) { return store.ExpireIf(t.Context(), "key", "mine", time.Hour) },
				"Renew":    func() (bool, error) { return store.Renew(t.Context(), "permits", "mine", time.Hour) },
				"DeleteIf": func() (bool, error) { return store.DeleteIf(t.Context(), "key", "mine") },
				"Leave":    func() (bool, error) { return store.Leave(t.Context(), "permits", "mine") },
			} {
				if ok, err := ok(); ok || err != nil {
					t.Errorf("%s = %v, %v; want false: it is lost", call, ok, err)
				}
			}
			wantMoved(t, "SetNX", set(t, store, "other"))
			_, err := store.Inspect(trial.Patient(t), "key")
			wantMoved(t, "Inspect", err)
			_, err = store.Identify(trial.Patient(t))
			wantMoved(t, "Identify", err)
			report, err := store.Check(trial.Patient(t))
			if err != nil || report.Err() == nil || !strings.Contains(report.String(), "restart the program") {
				t.Errorf("Check = %v, %v; want an unsafe finding that says what to do", report, err)
			}
			tx, err := first.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			if err := store.Guard(t.Context(), sqlstore.InTx(tx), contract.Lease{Key: "key", Token: "mine"}); !errors.Is(err, locker.ErrLost) {
				t.Errorf("Guard = %v; want ErrLost", err)
			}
			if r, err := second.store().SetNX(t.Context(), "key", "mine", time.Hour); err != nil || r.OK || r.Holder != backends.HolderOf("theirs") {
				t.Errorf("the second program does not hold the key: %+v, %v", r, err)
			}
		})
	}
}

// The holder itself is told, long before its lease ends. A new connection of the program's own pool makes an
// empty file where the first one was.
func TestAHolderIsToldThatTheFileOfSQLiteIsGone(t *testing.T) {
	for name, then := range map[string]func(t *testing.T, db *sql.DB, path string){
		"deleted or moved": func(*testing.T, *sql.DB, string) {},
		"replaced": func(t *testing.T, db *sql.DB, path string) {
			db.SetMaxOpenConns(0)
			for range 10 {
				c, err := db.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if _, err := os.Stat(path); err == nil {
					return
				}
			}
			t.Fatal("ten connections made no file")
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "locks.db")
			db := sqlite.dial(t, "file:"+path)
			db.SetMaxOpenConns(1)
			if err := sqlite.install(t.Context(), db.DB); err != nil {
				t.Fatal(err)
			}
			locks := locker.New(single.New(db.store()), locker.WithTTL(3*time.Second))
			l, err := locks.Lock(t.Context(), "key")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			then(t, db.DB, path)
			<-l.Context().Done()
			if lost, ok := errors.AsType[*locker.LostError](context.Cause(l.Context())); !ok || lost.Reason != locker.LostStolen {
				t.Errorf("the lock was lost by %v; want a renewal that finds it lost", context.Cause(l.Context()))
			}
			if err := context.Cause(l.Context()); !strings.Contains(err.Error(), path+" was "+name) {
				t.Errorf("the lock was lost by %v; want the file named", err)
			}
		})
	}
}

// Nothing is compared where there is no file, and a link is followed.
func TestAFileOfSQLiteThatIsWhereItWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for name, dsn := range map[string]string{"a link": "file:" + link, "memory": "file:?mode=memory", "a file system of the driver's own": "file:/locks.db?vfs=memdb"} {
		db := sqlite.dial(t, dsn)
		db.SetMaxOpenConns(1)
		if err := sqlite.install(t.Context(), db.DB); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		store := db.store()
		mustSet(t, store, "key", "mine", time.Hour)
		if ok, err := store.ExpireIf(t.Context(), "key", "mine", time.Hour); !ok || err != nil {
			t.Errorf("%s: ExpireIf = %v, %v", name, ok, err)
		}
	}
}

func mustSet(t *testing.T, s store, key, value string, ttl time.Duration) {
	t.Helper()
	if r, err := s.SetNX(t.Context(), key, value, ttl); err != nil || !r.OK {
		t.Fatalf("SetNX = %+v, %v", r, err)
	}
}

func set(t *testing.T, s store, key string) error {
	t.Helper()
	_, err := s.SetNX(t.Context(), key, "mine", time.Hour)
	return err
}

func wantMoved(t *testing.T, call string, err error) {
	t.Helper()
	if err == nil || !backends.Permanent(err) || !strings.Contains(err.Error(), "locks.db was ") || !strings.HasSuffix(err.Error(), "restart the program") {
		t.Errorf("%s = %v; want a permanent error that names the file and says what to do", call, err)
	}
}

// SQLite keeps its locks beside the name of the file: programs that open it by two names would both get a
// lock.
func TestAFileOfSQLiteWithTwoNamesIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	first := sqlite.dial(t, "file:"+path+"?_pragma=busy_timeout(10000)")
	if err := sqlite.install(t.Context(), first.DB); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Link(path, link); err != nil {
		t.Fatal(err)
	}
	wantNames := func(call string, err error) {
		t.Helper()
		if err == nil || !backends.Permanent(err) || !strings.Contains(err.Error(), "has 2 names") || !strings.Contains(err.Error(), "remove the other") {
			t.Errorf("%s = %v; want a permanent error that says why, and what to do", call, err)
		}
	}
	for _, name := range []string{path, link} {
		db := sqlite.dial(t, "file:"+name+"?_pragma=busy_timeout(10000)")
		db.SetMaxOpenConns(1) // none is kept: by one that is open, the driver finds the file under the other name
		wantNames("Install", sqlite.install(t.Context(), db.DB))
		store := db.store()
		for range 2 {
			wantNames("SetNX", set(t, store, "other"))
		}
		_, err := store.ExpireIf(t.Context(), "key", "mine", time.Hour)
		wantNames("ExpireIf", err)
		report, err := store.Check(trial.Patient(t))
		if err != nil || report.Err() == nil || !strings.Contains(report.String(), "remove the other") {
			t.Errorf("Check = %v, %v; want an unsafe finding that says what to do", report, err)
		}
		_ = db.Close()
	}
	store := sqlite.dial(t, "file:"+path).store()
	wantNames("SetNX", set(t, store, "other"))
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	mustSet(t, store, "other", "mine", time.Hour)
}
