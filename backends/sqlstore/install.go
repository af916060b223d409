package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/bounded"
)

//go:embed postgresql/*.sql sqlite/*.sql mysql/*.sql
var scripts embed.FS

// script is the text of a file.
func script(dir, name string) string {
	text, err := scripts.ReadFile(dir + "/" + name + ".sql")
	if err != nil {
		panic(err) // it is embedded
	}
	return inTheseFiles.Replace(string(text))
}

// PostgreSQLSchema returns the statements that create the schema lockstep with its tables and functions, for
// those who keep the schema of their database in files. Run them in one transaction. They may run again, also
// while locks are held. They fail, and change nothing, if a newer program has installed a newer version.
func PostgreSQLSchema() string {
	var all strings.Builder
	for _, name := range []string{"begin", "schema", "migrations", "queue", "lock", "number", "shared", "transfer", "inspect", "evict", "guard", "sweep", "end"} {
		all.WriteString(script("postgresql", name) + "\n")
	}
	return all.String()
}

// PostgreSQLGrants returns the statements that give a role the rights which a store needs, and no others.
func PostgreSQLGrants(role string) string {
	name := `"` + strings.ReplaceAll(role, `"`, `""`) + `"`
	return fmt.Sprintf(`GRANT USAGE ON SCHEMA lockstep TO %[1]s;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA lockstep TO %[1]s;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA lockstep TO %[1]s;
`, name)
}

// postgresqlVersion is the version of the tables and functions: that of begin.sql and end.sql. It rises with
// each change of a table or of a function. Otherwise an older program that installs again would put its own
// functions back.
const postgresqlVersion = 3

// tablesVersion is the version of the tables of MySQL and SQLite, where each program brings its own
// statements.
const tablesVersion = 2

// postgresqlStatements are the statements of [PostgreSQLSchema] one by one, for a transaction. A snapshot
// would hide what another program has installed meanwhile.
func postgresqlStatements() []string {
	all := []string{"SET TRANSACTION ISOLATION LEVEL READ COMMITTED"}
	var one strings.Builder
	inBody := false
	for line := range strings.Lines(PostgreSQLSchema()) {
		one.WriteString(line)
		if strings.Count(line, "$$")%2 == 1 {
			inBody = !inBody
		}
		if !inBody && strings.HasSuffix(strings.TrimSpace(line), ";") {
			all = append(all, one.String())
			one.Reset()
		}
	}
	return all
}

// InstallPostgreSQL runs [PostgreSQLSchema]. Programs may call it at every start, several at once.
// The role needs the right to create a schema; afterwards a store can do with less. Give such a role its
// rights ([PostgreSQLGrants]) again after each call, which may add functions. It gives up after 10 s if ctx
// has no deadline, as all functions that install do. What was begun then is undone by the database, or
// done: call it again. A change of large tables may take longer: give ctx a deadline then.
func InstallPostgreSQL(ctx context.Context, db *sql.DB) error {
	return installing(ctx, db, postgresqlName, postgresqlError, func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // after Commit it does nothing
		for _, statement := range postgresqlStatements() {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return tx.Commit()
	})
}

// InstallPostgreSQLBy is [InstallPostgreSQL] for a driver without database/sql. run runs the statements one
// after the other in one transaction, under the ctx that it is given.
func InstallPostgreSQLBy(ctx context.Context, run func(ctx context.Context, statements []string) error) error {
	return installed(ctx, postgresqlError, func(ctx context.Context) error { return run(ctx, postgresqlStatements()) })
}

func installing(
	ctx context.Context, db *sql.DB, system string, classify func(error) *StatementError, run func(context.Context) error,
) error {
	if db == nil {
		return backends.Invalid("lockstep: install: the *sql.DB is nil")
	}
	at := &place{system: system}
	at.look(db)
	return installed(ctx, classify, func(ctx context.Context) error {
		err := run(ctx)
		if at.Endpoint() != "" { // no option gives it here
			err = at.locate(err)
		}
		return err
	})
}

func installed(ctx context.Context, classify func(error) *StatementError, run func(context.Context) error) error {
	_, err := bounded.Call(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, explainBy(ctx, classify, run(ctx))
	})
	if err != nil {
		return fmt.Errorf("lockstep: install: %w", ofInstall(err))
	}
	return nil
}

// undo is the ctx of a statement that must also be sent after the end of ctx.
func undo(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), time.Second)
}

// newerVersion is the error of an Install that would replace what a newer program has installed.
func newerVersion(there int) error {
	return backends.Invalidf("the tables of the locks are of version %d, from a newer program; this one has version %d, and replaces nothing; calls of older programs work: leave out Install, or use a newer version",
		there, tablesVersion)
}
