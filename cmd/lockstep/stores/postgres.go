package stores

import (
	"context"
	"net/url"
	"strings"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/cmd/lockstep/command"
)

// PostgreSQL is a database with the schema lockstep (pgxstore.Install). The parameter listener
// has a second URL, percent-encoded: wake-ups come through this one, past a pooler. wakes=off is
// pgxstore.WithoutWakes. ca, cert and key name files, as sslrootcert, sslcert and sslkey do. With them
// sslmode is verify-full unless the URL says otherwise.
func PostgreSQL() command.Family {
	return command.Family{
		Schemes: []string{"postgres", "postgresql"},
		Examples: []string{
			"postgres://user:password@host:5432/database?sslmode=verify-full",
			"postgres://pooler:6432/database?listener=postgres%3A%2F%2Fhost%3A5432%2Fdatabase",
		},
		Open:  openPostgreSQL,
		Terms: sqlTerms,
	}
}

func openPostgreSQL(ctx context.Context, text string, o command.Options) (*command.Store, error) {
	u, _, err := command.ParseURL(text)
	if err != nil {
		return nil, err
	}
	opts := []pgxstore.Option{pgxstore.WithMaxTTL(o.MaxTTL)}
	if o.Prefix != "" {
		opts = append(opts, pgxstore.WithPrefix(o.Prefix))
	}
	q := u.Query()
	if direct := q.Get("listener"); direct != "" {
		if direct, err = sslFiles(direct); err != nil {
			return nil, err
		}
		opts = append(opts, pgxstore.WithListener(direct))
	}
	off, err := isOff(q, "wakes")
	if err != nil {
		return nil, err
	}
	if off {
		opts = append(opts, pgxstore.WithoutWakes())
	}
	if q.Has("listener") || u.Query().Has("wakes") {
		q.Del("listener")
		text = withQuery(text, q)
	}
	if text, err = sslFiles(text); err != nil {
		return nil, err
	}
	store, pool, err := pgxstore.Open(ctx, text, opts...)
	if err != nil {
		return nil, err
	}
	return &command.Store{
		Backend: store,
		Check: func(ctx context.Context) (command.Report, error) {
			r, err := store.Check(ctx)
			return command.Report{Server: r.Version, Findings: r.Findings, ClockSkew: r.ClockSkew}, err
		},
		Remedy:  remedyPostgreSQL,
		Advise:  advise(advisePostgreSQL),
		Install: func(ctx context.Context) error { return pgxstore.Install(ctx, pool) },
		Schema:  sqlstore.PostgreSQLSchema(),
		Grants:  sqlstore.PostgreSQLGrants,
		Close:   pool.Close,
	}, nil
}

// sslFiles gives the files of TLS the names that they have for PostgreSQL.
func sslFiles(text string) (string, error) {
	u, _, err := command.ParseURL(text)
	if err != nil {
		return "", err
	}
	q := u.Query()
	if _, err := tlsOf(u.Query()); err != nil {
		return "", err
	}
	renamed := false
	for own, name := range map[string]string{"ca": "sslrootcert", "cert": "sslcert", "key": "sslkey"} {
		if file := q.Get(own); file != "" {
			q.Set(name, file)
			q.Del(own)
			renamed = true
		}
	}
	if !renamed {
		return text, nil
	}
	if !q.Has("sslmode") {
		q.Set("sslmode", "verify-full")
	}
	return withQuery(text, q), nil
}

// withQuery keeps all hosts of the URL, unlike url.URL.
func withQuery(text string, q url.Values) string {
	before, _, _ := strings.Cut(text, "?")
	return before + "?" + q.Encode()
}

func remedyPostgreSQL(f backends.Finding) string {
	set := func(parameter, value string) string {
		return `psql -c "ALTER SYSTEM SET ` + parameter + ` = ` + value + `" -c "SELECT pg_reload_conf()"`
	}
	switch f.Problem {
	case sqlstore.ProblemPool:
		return "pool_max_conns=3 or more in the URL, or a pool for the locks alone"
	case sqlstore.ProblemRole:
		if strings.Contains(f.Detail, "read_only") {
			return `psql -c "ALTER ROLE USER SET default_transaction_read_only = off"`
		}
		return "give the URL of the primary, or add target_session_attrs=read-write"
	case sqlstore.ProblemClock:
		if strings.Contains(f.Detail, "clock") {
			return "chronyc makestep on the host of the server, or on this one, while no lock is held"
		}
		return "use PostgreSQL itself, or another store"
	case sqlstore.ProblemInstall:
		if strings.HasPrefix(f.Detail, "the role") {
			return "lockstep install -grant ROLE, as the owner of the schema lockstep"
		}
		return "lockstep install, as a role that may create a schema"
	case sqlstore.ProblemPersistence:
		switch {
		case strings.Contains(f.Detail, "UNLOGGED"):
			return `psql -d DATABASE -c "ALTER TABLE lockstep.lock SET LOGGED"`
		case strings.HasPrefix(f.Detail, "synchronous_commit"):
			return set("synchronous_commit", "on")
		}
		return set("fsync", "on") + "; the same with full_page_writes"
	case sqlstore.ProblemReplicas:
		return set("synchronous_standby_names", "'ANY 1 (*)'") + "; or show LOCKSTEP_FENCE to the resource"
	case sqlstore.ProblemIsolation:
		return `psql -c "ALTER ROLE USER SET default_transaction_isolation = 'read committed'"`
	case sqlstore.ProblemTransactions:
		return `psql -c "SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start"; then pg_terminate_backend(PID)`
	case sqlstore.ProblemWakes:
		return "add listener=URL to the URL of the store: a URL past the pooler"
	}
	return ""
}
