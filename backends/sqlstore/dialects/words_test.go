package dialects_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/mariadbtest"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// TestWordsOfErrorsOfMySQL: each error has the address, what became of the call and, where there is one,
// the next step. It never has the password. A *sql.DB does not tell its address, so a store without
// WithAddress has it only where the driver does: when it can't connect.
func TestWordsOfErrorsOfMySQL(t *testing.T) {
	t.Parallel()
	const password, nobody = "sesame", "127.0.0.1:1"
	server := mariadbtest.Start(t)
	// everybody may use the database test
	admin := mariadb.dial(t, server.DSN())
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE locks"); err != nil {
		t.Fatal(err)
	}
	if err := sqlstore.InstallMySQL(t.Context(), mariadb.dial(t, strings.Replace(server.DSN(), "/test", "/locks", 1)).DB); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"CREATE USER 'stranger'@'%' IDENTIFIED BY '" + password + "'", "GRANT CREATE ON locks.* TO 'stranger'@'%'",
		"CREATE USER 'intruder'@'%' IDENTIFIED BY 'another'", "CREATE USER 'app'@'%' IDENTIFIED BY '" + password + "'", "GRANT ALL ON locks.* TO 'app'@'%'",
	} {
		if _, err := admin.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	mute, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes connections, and nobody says a word
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	for name, c := range map[string]struct {
		user, addr string
		warm       bool // a call has worked before
		closed     bool
		limit      time.Duration // of the ctx; negative: it has ended before
		unsent     bool
		permanent  bool
		is         error
		next       string
		known      bool // without WithAddress too
	}{
		"nobody listens":    {user: "app", addr: nobody, unsent: true, next: "connection refused", known: true},
		"a silent server":   {user: "app", addr: mute.Addr().String(), limit: time.Second, unsent: true, is: context.DeadlineExceeded},
		"a wrong password":  {user: "intruder", addr: server.Addr(), permanent: true, next: "Access denied for user 'intruder'"},
		"a missing right":   {user: "stranger", addr: server.Addr(), permanent: true, next: "give the user SELECT, INSERT, UPDATE and DELETE"},
		"the ctx has ended": {user: "app", addr: server.Addr(), warm: true, limit: -1, unsent: true, is: context.Canceled},
		"closed":            {user: "app", addr: server.Addr(), warm: true, closed: true, unsent: true, next: "closed"},
	} {
		for _, told := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, address told: %v", name, told), func(t *testing.T) {
				t.Parallel()
				db, err := sql.Open("mysql", c.user+":"+password+"@tcp("+c.addr+")/locks")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = db.Close() })
				var opts []sqlstore.Option
				if told {
					opts = append(opts, sqlstore.WithAddress(c.addr))
				}
				store := sqlstore.NewMySQL(db, opts...)
				if c.warm {
					if _, err := store.SetNX(t.Context(), name+fmt.Sprint(told), "token", time.Second); err != nil {
						t.Fatal(err)
					}
				}
				if c.closed {
					_ = db.Close()
				}
				for call, fn := range map[string]func(context.Context) error{
					"SetNX":    func(ctx context.Context) error { _, err := store.SetNX(ctx, "a", "token", time.Second); return err },
					"ExpireIf": func(ctx context.Context) error { _, err := store.ExpireIf(ctx, "a", "token", time.Second); return err },
					"DeleteIf": func(ctx context.Context) error { _, err := store.DeleteIf(ctx, "a", "token"); return err },
					"Inspect":  func(ctx context.Context) error { _, err := store.Inspect(ctx, "a"); return err },
				} {
					ctx, cancel := context.WithCancel(t.Context())
					if c.limit > 0 {
						ctx, cancel = context.WithTimeout(t.Context(), c.limit)
					}
					defer cancel()
					if c.limit < 0 {
						cancel()
					}
					err := fn(ctx)
					switch text := fmt.Sprint(err); {
					case err == nil:
						t.Errorf("%s: it has worked", call)
					case (told || c.known) != strings.Contains(text, c.addr):
						t.Errorf("%s: %v; want the address %s: %v", call, err, c.addr, told || c.known)
					case !strings.Contains(text, c.next), c.is != nil && !errors.Is(err, c.is):
						t.Errorf("%s: %v; want %q and an error that is %v", call, err, c.next, c.is)
					case backends.Permanent(err) != c.permanent, backends.Unsent(err) != c.unsent:
						t.Errorf("%s: %v: permanent %v and not sent %v; want %v and %v", call, err, backends.Permanent(err), backends.Unsent(err), c.permanent, c.unsent)
					case strings.Contains(text, password):
						t.Errorf("%s: %v has the password", call, err)
					}
				}
			})
		}
	}
}

// The end of a ctx makes the Client leave an attempt, whose error it does not have.
func TestTheAddressOfAMySQLServerThatFallsSilent(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	addr := mute.Addr().String()
	db := mariadb.dial(t, "root@tcp("+addr+")/test")
	_, err = locker.New(single.New(db.store(sqlstore.WithAddress(addr)))).Lock(t.Context(), "a", locker.WithWait(time.Second))
	if err == nil || !strings.Contains(err.Error(), addr) || backends.Permanent(err) {
		t.Errorf("%v; want the address %s", err, addr)
	}
}
