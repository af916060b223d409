package backendtest

import (
	"context"
	"errors"

	"github.com/lockstep-go/lockstep/backends"
)

// commands are all calls of a LegacyStore with that key, each of which would change something if it did anything.
func (x *fixture) commands(key string) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"SetNXForever": func(ctx context.Context) error { _, err := x.legacy.SetNXForever(ctx, key, "mine"); return err },
		"Get":          func(ctx context.Context) error { _, _, err := x.legacy.Get(ctx, key); return err },
		"GetSet":       func(ctx context.Context) error { _, _, err := x.legacy.GetSet(ctx, key, "other"); return err },
		"Left":         func(ctx context.Context) error { _, _, err := x.legacy.Left(ctx, key); return err },
		"Expire":       func(ctx context.Context) error { _, err := x.legacy.Expire(ctx, key, 2*x.long); return err },
		"Delete":       func(ctx context.Context) error { _, err := x.legacy.Delete(ctx, key); return err },
		"TxExpireIf":   func(ctx context.Context) error { _, err := x.legacy.TxExpireIf(ctx, key, "mine", 2*x.long); return err },
		"TxDeleteIf":   func(ctx context.Context) error { _, err := x.legacy.TxDeleteIf(ctx, key, "mine"); return err },
		"GetBit":       func(ctx context.Context) error { _, err := x.legacy.GetBit(ctx, key, 1); return err },
		"SetBit":       func(ctx context.Context) error { _, err := x.legacy.SetBit(ctx, key, 0, true); return err },
	}
}

var legacyRefusalSentences = []sentence{
	{"commands on a text find a value of another type an error that matches ErrWrongType, and it stays", func(x *fixture) {
		key := x.key("k")
		x.outside.SetOther(key)
		commands := x.commands(key)
		for _, name := range []string{"Get", "GetSet", "TxExpireIf", "TxDeleteIf", "GetBit", "SetBit"} {
			err := commands[name](x.Context())
			if !errors.Is(err, backends.ErrWrongType) {
				x.Fatalf("%s: error %v; want one that matches ErrWrongType", name, err)
			}
			x.wantPermanent(name, err)
			x.wantForever(key, "")
		}
	}},
	{"every command with a ctx that is already done returns its error and changes nothing", func(x *fixture) {
		free, held := x.key("free"), x.key("held")
		l := x.put(held, "mine", x.long)
		for name, command := range x.commands(free) {
			x.done(name, command)
			x.wantNothing(free)
		}
		for name, command := range x.commands(held) {
			x.done(name, command)
			x.wantValue(held, "mine", l)
		}
	}},
}
