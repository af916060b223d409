package pagelocker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/middleware/pagelocker"
)

// evictor answers instead of a store, or lets it answer.
type evictor struct {
	backends.Evictor
	err error
}

func (e *evictor) Evict(ctx context.Context, key, seen string, how backends.Eviction) (bool, error) {
	if e.err != nil {
		return false, e.err
	}
	return e.Evictor.Evict(ctx, key, seen, how)
}

// refusal is the error of a store that has done nothing.
type refusal struct{}

func (refusal) Error() string   { return "permission denied for function evict" }
func (refusal) Permanent() bool { return true }

func everybody(*http.Request) bool { return true }

// force is a release by force of order/1.
func (s *scene) force(seen string) *httptest.ResponseRecorder {
	return ask(s.page, http.MethodPost, "/?key=order/1", url.Values{"print": {seen}})
}

// The page was started again, so nobody has looked at the key when a release comes.
func TestTheAnswerToAReleaseShowsTheLockThoughNobodyHasLookedBefore(t *testing.T) {
	for name, c := range map[string]struct {
		fails        error
		status       int
		notice, says string // what the page shows, and what the log has
	}{
		"another print": {
			nil, http.StatusConflict, "Nothing was released: that hold has ended, or another holder has the key.",
			`"no lock released by force on the page" key=order/1 print=1111 now=false remote=192.0.2.1:1234 reason="that hold has ended, or another holder has the key"`,
		},
		"a user that may not": {
			refusal{}, http.StatusBadGateway, "Nothing was released: permission denied for function evict",
			`"no lock released by force on the page" key=order/1 print=1111 now=false remote=192.0.2.1:1234 reason="permission denied for function evict"`,
		},
		"a connection that breaks": {
			errors.New("unexpected EOF"), http.StatusBadGateway, "It is not known whether that hold was released: unexpected EOF",
			`"unknown whether a lock was released by force on the page" key=order/1 print=1111 now=false remote=192.0.2.1:1234 reason="unexpected EOF"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, log := new(evictor), new(bytes.Buffer)
			play(t, func(s *scene) {
				defer s.lock(s.others, "order/1").Unlock(s.Context())
				e.Evictor, e.err = s.Store, c.fails
				w := s.force("1111")
				text := mainOf(w.Body.String())
				if w.Code != c.status || !strings.Contains(text, "holder 1 ") || !strings.Contains(text, "others/2") {
					s.Errorf("status %d and %q; want %d, and the holder", w.Code, text, c.status)
				}
				if strings.Contains(text, "not asked") || strings.Contains(text, "Free") {
					s.Errorf("the answer is wrong: %q", text)
				}
				if !strings.Contains(text, c.notice) || !strings.Contains(log.String(), c.says) {
					s.Errorf("the page shows %q, and the log has %q", text, log)
				}
			}, pagelocker.WithRelease(e, everybody), pagelocker.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		})
	}
}

func TestTheAnswerToAReleaseSaysWhatIsNotKnown(t *testing.T) {
	e := new(evictor)
	play(t, func(s *scene) {
		defer s.lock(s.others, "order/1").Unlock(s.Context())
		e.Evictor = s.Store
		failure := errors.New("no route to 10.0.0.7:6379")
		s.fails.Store(&failure)
		if text := mainOf(s.force("1111").Body.String()); !strings.Contains(text, "holders not known") || strings.Contains(text, "Free") {
			s.Errorf("the answer is %q", text)
		}
	}, pagelocker.WithRelease(e, everybody))
}
