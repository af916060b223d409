package pagelocker_test

import (
	"context"
	"errors"
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

func everybody(*http.Request) bool { return true }

// force is a release by force of order/1.
func (s *scene) force(seen string) *httptest.ResponseRecorder {
	return ask(s.page, http.MethodPost, "/?key=order/1", url.Values{"print": {seen}})
}

// The page was started again, so nobody has looked at the key when a release comes.
func TestTheAnswerToAReleaseShowsTheLockThoughNobodyHasLookedBefore(t *testing.T) {
	for name, c := range map[string]struct {
		fails  error
		status int
	}{
		"another print":       {nil, http.StatusConflict},
		"a user that may not": {errors.New("permission denied for function evict"), http.StatusBadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			e := new(evictor)
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
			}, pagelocker.WithRelease(e, everybody))
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
