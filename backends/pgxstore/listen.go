package pgxstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
)

// listens hears a channel on a connection of its own.
type listens struct {
	connect func(ctx context.Context) (*pgx.Conn, error)
	addr    string
	lender  *lender       // nil: the connections are not made as those of the pool are
	age     time.Duration // the most for a connection that is lent
	quiet   func()        // is called every few seconds while the connection can be lent
}

// pingInterval is how long a connection may be silent before it is asked whether it still lives.
const pingInterval = 5 * time.Second

// Listen implements sqlstore.Listener.
func (l listens) Listen(ctx context.Context, channel string, active func(), heard func(message string)) error {
	return locate(l.addr, l.listen(ctx, channel, active, heard))
}

// Serves implements sqlstore.Listener.
func (l listens) Serves() bool { return l.lender.session() != nil }

func (l listens) listen(ctx context.Context, channel string, active func(), heard func(message string)) error {
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer closeSoon(ctx, conn)
	lends, err := l.setUp(ctx, conn, channel)
	if err != nil {
		return err
	}
	s := &session{conn: conn, answered: time.Now(), back: make(chan struct{}, 1)}
	if lends {
		s.until, s.quiet = s.answered.Add(l.age), l.quiet
		l.lender.at.Store(s)
		defer l.lender.at.CompareAndSwap(s, nil) // there may be another one since
	}
	defer s.end()
	s.received(func(*pgconn.Notification) {}) // behind a pooler, an earlier message may have come with an answer
	active()
	return s.run(ctx, func(n *pgconn.Notification) {
		if n.Channel == channel { // the pool's connection may have listened to others
			heard(n.Payload)
		}
	})
}

// setUp opens the channel, and tells whether the connection can be lent.
func (l listens) setUp(ctx context.Context, conn *pgx.Conn, channel string) (lends bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pingInterval) // one of the pool may have fallen silent
	defer cancel()
	if l.lender != nil {
		if lends, err = isSession(ctx, conn); err != nil {
			return false, err
		}
	}
	settings := "LISTEN " + pgx.Identifier{channel}.Sanitize()
	if lends {
		settings += "; SET lock_timeout = '" + sqlstore.RowLimit + "'; SET statement_timeout = '" + lentLimit + "'"
		if unnamed(conn.Config()) {
			settings += "; SET application_name = '" + nameWakes + "'"
		}
	}
	_, err = conn.Exec(ctx, settings)
	return lends, err
}

// isSession tells whether a connection leads to the same process of the server for as long as it lives. A
// pooler that gives each transaction another one does not know the process when a client connects.
func isSession(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var pid uint32
	err := conn.QueryRow(ctx, "SELECT pg_backend_pid()::bigint", pgx.QueryExecModeExec).Scan(&pid)
	return pid == conn.PgConn().PID(), err
}
