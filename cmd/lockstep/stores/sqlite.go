package stores

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/cmd/lockstep/command"
	_ "modernc.org/sqlite" // the driver
)

// SQLite is a file, for the processes of this computer. Only `lockstep install` creates it.
func SQLite() command.Family {
	return command.Family{
		Schemes:  []string{"sqlite"},
		Examples: []string{"sqlite:///var/lib/app/locks.db"},
		Open:     openSQLite,
		Terms:    sqlTerms,
	}
}

func openSQLite(_ context.Context, text string, o command.Options) (*command.Store, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host != "" || u.Path == "" {
		return nil, errors.New("it is no absolute path: sqlite:///var/lib/app/locks.db has three slashes")
	}
	if u.RawQuery != "" {
		return nil, errors.New("a URL of SQLite has no parameters: the command needs the file to write, and sets a busy_timeout of 5s")
	}
	db, err := openFile(u.Path, "rw")
	if err != nil {
		return nil, err
	}
	store := sqlstore.NewSQLite(db, sqlOptions(o)...)
	return &command.Store{
		Backend: store,
		Check: func(ctx context.Context) (command.Report, error) {
			r, err := store.Check(ctx)
			return command.Report{Server: r.Version, Findings: r.Findings}, err
		},
		Remedy: remedySQLite,
		Advise: advise(adviseSQLite),
		Install: func(ctx context.Context) error {
			db, err := openFile(u.Path, "rwc")
			if err != nil {
				return err
			}
			return errors.Join(sqlstore.InstallSQLite(ctx, db), db.Close())
		},
		Schema: sqlstore.SQLiteSchema(),
		Close:  func() { _ = db.Close() }, // nothing is written that it could lose
	}, nil
}

// openFile opens a database; the mode rwc creates the file if it is not there.
func openFile(path, mode string) (*sql.DB, error) {
	file := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath()}
	return sql.Open("sqlite", file.String()+"?mode="+mode+"&_pragma=busy_timeout(5000)&_pragma=synchronous(NORMAL)")
}

// sqlOptions are those of a store without wake-ups.
func sqlOptions(o command.Options) []sqlstore.Option {
	opts := []sqlstore.Option{sqlstore.WithMaxTTL(o.MaxTTL)}
	if o.Prefix != "" {
		opts = append(opts, sqlstore.WithPrefix(o.Prefix))
	}
	return opts
}

func remedySQLite(f backends.Finding) string {
	switch f.Problem {
	case sqlstore.ProblemInstall:
		return "lockstep install, as a user who may write the file"
	case sqlstore.ProblemFile:
		return "give a path on a disk of this computer; another store for several computers"
	case sqlstore.ProblemPersistence:
		if strings.HasPrefix(f.Detail, "synchronous") {
			return "_pragma=synchronous(NORMAL) in the DSN of the programs"
		}
		return "lockstep install, while no program has the file open"
	case sqlstore.ProblemBusy:
		return "_pragma=busy_timeout(5000) in the DSN of the programs"
	case sqlstore.ProblemPool:
		return ownDB
	}
	return ""
}
