package pgx

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// listens hears a channel on a connection of its own.
type listens struct{ config *pgx.ConnConfig }

// pingInterval is how long a connection may be silent before it is asked whether it still lives.
const pingInterval = 5 * time.Second

// Listen implements sqlstore.Listener.
func (l listens) Listen(ctx context.Context, channel string, active func(), heard func(message string)) error {
	return locate(addresses(l.config), l.listen(ctx, channel, active, heard))
}

func (l listens) listen(ctx context.Context, channel string, active func(), heard func(message string)) error {
	config := l.config.Copy()
	name(config, "lockstep wake-ups")
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer closeSoon(ctx, conn)
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	active()
	for {
		note, err := l.next(ctx, conn)
		switch {
		case err != nil:
			return err
		case note != "":
			heard(note)
		}
	}
}

// next returns a message, or an empty text if none came and the connection lives.
func (l listens) next(ctx context.Context, conn *pgx.Conn) (string, error) {
	quiet, cancel := context.WithTimeout(ctx, pingInterval)
	defer cancel()
	note, err := conn.WaitForNotification(quiet)
	if err == nil {
		return note.Payload, nil
	}
	if quiet.Err() == nil || ctx.Err() != nil || conn.IsClosed() {
		return "", err
	}
	ping, cancel := context.WithTimeout(ctx, pingInterval)
	defer cancel()
	return "", conn.Ping(ping)
}
