package pgxstore_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/proof/pgtest"
)

// With fsync on, a grant that was told is on disk. With off, nothing is synced, so that the server is here
// again as it was started.
func TestAPowerCutForgetsGrantsUnlessTheyAreSynced(t *testing.T) {
	t.Parallel()
	for fsync, forgets := range map[string]bool{"on": false, "off": true} {
		t.Run(fsync, func(t *testing.T) {
			t.Parallel()
			server := pgtest.StartWithVolatileDisk(t, "fsync="+fsync)
			store := pgxstore.New(install(t, server.DSN()), pgxstore.WithMaxTTL(maxTTL))
			server.Stop()
			server.Restart() // the tables are safe
			const grants = 20
			for i := range grants {
				eventually(t, "the server answers", func() bool {
					r, err := store.SetNX(t.Context(), strconv.Itoa(i), "token", 20*time.Minute)
					return err == nil && r.OK
				})
			}
			server.CutPower()
			server.Restart()
			forgot := 0
			for i := range grants {
				eventually(t, "the server answers", func() bool {
					ok, err := store.ExpireIf(t.Context(), strconv.Itoa(i), "token", 20*time.Minute)
					if err == nil && !ok {
						forgot++
					}
					return err == nil
				})
			}
			if want := map[bool]int{true: grants}[forgets]; forgot != want {
				t.Errorf("%d of %d grants were forgotten; want %d", forgot, grants, want)
			}
		})
	}
}
