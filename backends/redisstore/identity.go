package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/info"
)

// identityKey lies beside the locks, after the prefix, on servers that do not tell what they are.
const identityKey = "lockstep:server"

// identityTTL must be longer than a check of all nodes takes.
const identityTTL = time.Minute

var errForgetful = errors.New("the server forgets at once what is stored")

// Identify tells which server this is by its run_id, and whether it is a master. A server that does
// not tell, or not to us, gets an identity for a minute by a key of its own, lockstep:server after
// the prefix: two stores with different prefixes or databases then do not see that they are on one
// server. With a cluster client one node answers. It works in quarantine too.
func (s *Store) Identify(ctx context.Context) (backends.Identity, error) {
	return reading(ctx, s, func(ctx context.Context) (backends.Identity, error) { return s.identify(ctx) })
}

func (s *Store) identify(ctx context.Context) (backends.Identity, error) {
	if err := ctx.Err(); err != nil {
		return backends.Identity{}, err
	}
	reply, err := s.look(ctx, "INFO")
	if refused := (*driver.ReplyError)(nil); errors.As(err, &refused) {
		switch refused.Code() {
		case "NOPERM", "ERR":
			reply, err = "", nil
		}
	}
	if err != nil {
		return backends.Identity{}, err
	}
	text, _ := reply.(string)
	fields := info.Parse(text)
	id := backends.Identity{Server: fields["run_id"], Role: fields["role"]}
	if id.Server == "" {
		id.Server, err = s.mark(ctx)
	}
	return id, err
}

// mark gives the server a name, or finds the one that it has been given.
func (s *Store) mark(ctx context.Context) (string, error) {
	key := s.config.prefix + identityKey
	for range 3 {
		if _, err := s.look(ctx, "SET", key, rand.Text(), "NX", "PX", identityTTL.Milliseconds()); err != nil {
			return "", err
		}
		name, found, err := text(s.look(ctx, "GET", key))
		if found || err != nil {
			return name, err
		}
	}
	return "", errForgetful
}
