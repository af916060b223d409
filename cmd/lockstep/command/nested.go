package command

import (
	"context"
	"crypto/sha1" // the name that Redis gives a hold; it protects nothing
	"encoding/hex"
	"os"
	"slices"
	"strings"

	"github.com/lockstep-go/lockstep/backends"
)

// heldVariable has the prints of the holds of all runs that a command is a part of. A print names a
// hold, however the store is reached and whatever stands before the key.
const heldVariable = "LOCKSTEP_HELD"

// heldBy is the value of heldVariable for a command under the token. A store makes one of two prints.
func heldBy(token string) string {
	sum := sha1.Sum([]byte(token))
	return strings.TrimSpace(os.Getenv(heldVariable) + " " + backends.PrintOf(token) + " " + hex.EncodeToString(sum[:8]))
}

// waitsForItself is an error if holds of the runs that this call is a part of keep it out: they end
// after it has ended. A reader in a reader waits as soon as a writer stands between the two. A store that does
// not tell who holds the lock changes nothing.
func (r *running) waitsForItself(ctx context.Context, stores []*Store) error {
	outer := strings.Fields(os.Getenv(heldVariable))
	if len(outer) == 0 {
		return nil
	}
	states, errs := r.inspect(ctx, stores, r.name)
	closed, holder, would := 0, "", "it would wait for itself for ever"
	for i, s := range states {
		if errs[i] != nil {
			continue
		}
		if r.strategy == "rw-readers" && s.Group == "read" {
			if !r.waits() {
				continue // readers hold it together
			}
			would = "behind a writer that waits, it would wait for itself for ever"
		}
		ours := 0
		for _, h := range s.Holds {
			if slices.Contains(outer, h.Print) {
				ours++
				holder = who(h)
			}
		}
		if ours >= max(r.permits, 1) {
			closed++
		}
	}
	if len(stores)-closed >= r.need(len(stores)) {
		return nil
	}
	return usage("%s is held by %s, a run that this call is a part of: %s. "+
		"Take the lock in one of the two only, or give another NAME", r.name, holder, would)
}
