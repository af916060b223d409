package etcd_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/proof/etcdtest"
)

// A cluster that is restored from a snapshot has the locks of that time: later grants are forgotten, and
// locks that were released since are held again. Numbers fall, unless the restore takes care of them.
func TestARestoreFromASnapshotBringsBackTheLocksOfThatTime(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name  string
		flags []string
		falls bool
	}{
		{"as it is", nil, true},
		{"with a greater revision", []string{"--bump-revision", "1000000000", "--mark-compacted"}, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			c := etcdtest.Start(t, 3, etcdtest.Fast, etcdtest.Steady)
			grant := func(s *etcd.Store, key, token string) (r backends.Result) {
				t.Helper()
				eventually(t, "an answer", func() (answered bool) {
					var err error
					r, err = s.SetNXNumbered(t.Context(), key, token, 10*time.Minute, backends.Turn{})
					return err == nil
				})
				return r
			}
			client := dial(t, c.Endpoints()[:1]) // the snapshot of another member could lack the last grant
			store := etcd.New(client, etcd.WithMaxTTL(maxTTL))
			if r := grant(store, "old", "token"); !r.OK {
				t.Fatal(r)
			}
			snapshot := save(t, client)
			if ok, err := store.DeleteIf(t.Context(), "old", "token"); err != nil || !ok {
				t.Fatal(ok, err)
			}
			first := grant(store, "new", "first")
			if !first.OK {
				t.Fatal(first)
			}
			_ = client.Close()

			c.Restore(snapshot, x.flags...)
			store = etcd.New(dial(t, c.Endpoints()), etcd.WithMaxTTL(maxTTL))
			if r := grant(store, "old", "other"); r.OK {
				t.Error("a lock that was released after the snapshot is free; want it held as it was then")
			}
			second := grant(store, "new", "second")
			if !second.OK {
				t.Errorf("%+v; want the grant after the snapshot to be forgotten", second)
			}
			if falls := second.Fence <= first.Fence; falls != x.falls {
				t.Errorf("the numbers are %d, and %d after the restore", first.Fence, second.Fence)
			}
		})
	}
}

// save writes a snapshot of the cluster to a file.
func save(t *testing.T, client *clientv3.Client) (file string) {
	t.Helper()
	r, err := client.SnapshotWithVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Snapshot.Close() }()
	data, err := io.ReadAll(r.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
