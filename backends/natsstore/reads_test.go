package natsstore_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Answers of a server, and the subject of a read.
const (
	read     = "$JS.API.STREAM.MSG.GET.LOCKSTEP"
	conflict = `{"error":{"code":400,"err_code":10071}}`
	nothing  = `{"error":{"code":404,"err_code":10037}}`
)

// answering starts a server without JetStream, behind which the test answers what is sent to each
// subject: with its answers in turn, and then with the last of them. A request with the word silent
// gets none. It returns a store on the server, and the count of the requests.
func answering(t *testing.T, all map[string][]string) (*natsstore.Store, *atomic.Int64) {
	t.Helper()
	url := run(t, func(o *server.Options) { o.JetStream = false }).ClientURL()
	conn := dial(t, url)
	sent := new(atomic.Int64)
	for subject, answers := range all {
		n := 0
		_, err := conn.Subscribe(subject, func(m *nats.Msg) {
			if strings.Contains(string(m.Data), "silent") {
				return
			}
			n++
			sent.Add(1)
			_ = m.Respond([]byte(answers[min(n, len(answers))-1]))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	return natsstore.New(dial(t, url)), sent
}

// Every request that changes something is refused, but for the first grant, and no read gets an
// answer of JetStream.
func TestACallWhoseReadFailsIsNotDone(t *testing.T) {
	store, _ := answering(t, map[string][]string{
		"lockstep.lock.remembered":           {`{"seq":7}`, conflict},
		"lockstep.lock.held":                 {conflict},
		"lockstep.lock.deleted":              {`{"seq":8}`},
		"$JS.API.STREAM.MSG.DELETE.LOCKSTEP": {`{"error":{"code":400,"err_code":10043}}`},
		read:                                 {`no JSON`},
		"$JS.API.STREAM.INFO.LOCKSTEP":       {`no JSON`},
	})
	const ttl = 10 * time.Second
	for _, key := range []string{"remembered", "deleted"} {
		if r, err := store.SetNX(t.Context(), key, "token", ttl); err != nil || !r.OK {
			t.Fatal(r, err)
		}
	}
	for name, call := range map[string]func(ctx context.Context) error{
		"SetNX":                      func(ctx context.Context) error { _, err := store.SetNX(ctx, "held", "token", ttl); return err },
		"ExpireIf":                   func(ctx context.Context) error { _, err := store.ExpireIf(ctx, "held", "token", ttl); return err },
		"ExpireIf after a conflict":  func(ctx context.Context) error { _, err := store.ExpireIf(ctx, "remembered", "token", ttl); return err },
		"DeleteIf":                   func(ctx context.Context) error { _, err := store.DeleteIf(ctx, "held", "token"); return err },
		"DeleteIf of what was there": func(ctx context.Context) error { _, err := store.DeleteIf(ctx, "deleted", "token"); return err },
		"Inspect":                    func(ctx context.Context) error { _, err := store.Inspect(ctx, "held"); return err },
		"List":                       func(ctx context.Context) error { _, err := store.List(ctx, "", "", 10); return err },
	} {
		if err := call(t.Context()); err == nil || !isUnsent(err) || isPermanent(err) || !strings.Contains(err.Error(), "nothing was done") {
			t.Errorf("%s: %v; want an error that says that nothing was done", name, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := store.DeleteIf(ctx, "silent", "token"); !isUnsent(err) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("DeleteIf = %v; want the end of the ctx, and nothing done", err)
	}
}

func TestAGrantWhoseValueEndsBeforeItsRenewalBeginsAnew(t *testing.T) {
	store, _ := answering(t, map[string][]string{
		"lockstep.lock.key": {conflict, conflict, `{"seq":9}`},
		read:                {`{"message":{"seq":5,"data":"PXRva2Vu","hdrs":"TkFUUy8xLjANCk5hdHMtVFRMOiAxcw0KDQo="}}`, nothing}, // =token, for one second
	})
	if r, err := store.SetNXNumbered(t.Context(), "key", "token", time.Second, backends.Turn{}); err != nil || !r.OK || r.Fence != 9 {
		t.Errorf("SetNXNumbered = %+v, %v; want it granted with number 9", r, err)
	}
}

func TestACallPausesWhileAnotherWriteIsUnderWay(t *testing.T) {
	token := rand.Text()
	held := fmt.Sprintf(`{"message":{"seq":5,"data":%q,"hdrs":%q}}`,
		base64.StdEncoding.EncodeToString([]byte("="+token)), base64.StdEncoding.EncodeToString([]byte("NATS/1.0\r\nNats-TTL: 9s\r\n\r\n")))
	for name, c := range map[string]struct {
		read string
		call func(ctx context.Context, store *natsstore.Store) error
	}{
		"SetNX": {nothing, func(ctx context.Context, store *natsstore.Store) error {
			_, err := store.SetNX(ctx, "key", token, time.Second)
			return err
		}},
		"SetNX of the same value": {held, func(ctx context.Context, store *natsstore.Store) error {
			_, err := store.SetNX(ctx, "key", token, time.Second)
			return err
		}},
		"ExpireIf": {held, func(ctx context.Context, store *natsstore.Store) error {
			_, err := store.ExpireIf(ctx, "key", token, time.Second)
			return err
		}},
		"DeleteIf": {held, func(ctx context.Context, store *natsstore.Store) error {
			_, err := store.DeleteIf(ctx, "key", token)
			return err
		}},
		"Evict": {held, func(ctx context.Context, store *natsstore.Store) error {
			_, err := store.Evict(ctx, "key", backends.PrintOf(token), backends.Eviction{By: "ann"})
			return err
		}},
		"Evict now": {held, func(ctx context.Context, store *natsstore.Store) error {
			_, err := store.Evict(ctx, "key", backends.PrintOf(token), backends.Eviction{By: "ann", Now: true})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			store, sent := answering(t, map[string][]string{
				"lockstep.lock.key":                  {conflict},
				"$JS.API.STREAM.MSG.DELETE.LOCKSTEP": {`{"error":{"code":404,"err_code":10043}}`},
				"$JS.API.STREAM.INFO.LOCKSTEP":       {fmt.Sprintf(`{"ts":%q}`, time.Now().Format(time.RFC3339Nano))},
				read:                                 {c.read},
			})
			var err error
			for range 20 { // on a busy machine, the ctx may end during a request instead of a pause
				before := sent.Load()
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				err = c.call(ctx, store)
				cancel()
				if n := sent.Load() - before; n > 3*12 { // a slow machine sends less, and never more
					t.Errorf("%d requests in 300ms; want at most 12 attempts of 3 requests", n)
				}
				if !errors.Is(err, context.DeadlineExceeded) || isUnsent(err) {
					break
				}
			}
			if !errors.Is(err, context.DeadlineExceeded) || !isUnsent(err) {
				t.Errorf("%v; want the end of the ctx, and nothing done", err)
			}
		})
	}
}
