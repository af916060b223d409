package nats_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/nats"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
)

// A server without JetStream, behind which a test answers: every request that changes something is refused,
// but for the first grant, and no read gets an answer of JetStream.
func TestACallWhoseReadFailsIsNotDone(t *testing.T) {
	url := run(t, func(o *server.Options) { o.JetStream = false }).ClientURL()
	answering := dial(t, url)
	for subject, answers := range map[string][]string{
		"lockstep.lock.remembered":           {`{"seq":7}`, `{"error":{"code":400,"err_code":10071}}`},
		"lockstep.lock.held":                 {`{"error":{"code":400,"err_code":10071}}`},
		"lockstep.lock.deleted":              {`{"seq":8}`},
		"$JS.API.STREAM.MSG.DELETE.LOCKSTEP": {`{"error":{"code":400,"err_code":10043}}`},
		"$JS.API.STREAM.MSG.GET.LOCKSTEP":    {`no JSON`},
		"$JS.API.STREAM.INFO.LOCKSTEP":       {`no JSON`},
	} {
		_, err := answering.Subscribe(subject, func(m *natsgo.Msg) {
			if strings.Contains(string(m.Data), "silent") {
				return
			}
			_ = m.Respond([]byte(answers[0]))
			if len(answers) > 1 {
				answers = answers[1:]
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := answering.Flush(); err != nil {
		t.Fatal(err)
	}
	store := nats.New(dial(t, url))
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
