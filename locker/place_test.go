package locker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/locker/contract"
)

// Each attempt without an answer makes a call more patient. An answer shows that the store is there.
func TestAnAnswerShortensThePatienceOfACallAgain(t *testing.T) {
	w, so := &waiting{}, &effort{wait: &waitPolicy{limit: time.Hour, ttl: time.Hour}}
	req := &contract.Request{TTL: time.Hour}
	first := w.patience(req, so)
	so.silent = 3
	so.failed(errors.New("down"))
	if later := w.patience(req, so); later <= first {
		t.Fatalf("after three attempts without an answer the patience is %v; want more than %v", later, first)
	}
	so.failed(&HeldError{})
	if again := w.patience(req, so); again != first {
		t.Errorf("after an answer the patience is %v; want %v", again, first)
	}
}

func TestTheWaitersOfAQueueLookForTheEndOfTheLeaseOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const left = 50 * time.Millisecond
		for position, after := range map[int]time.Duration{1: 0, 2: 0, 3: 0, 4: minLook, 5: 2 * minLook, 20: 17 * minLook} {
			ln := &line{key: "key", state: lineState{held: &HeldError{Position: position}, until: time.Now().Add(left), watch: watchActive}}
			p := &place{w: &waiting{lines: &lines{}}, key: "key", ln: ln}
			pause := p.pause(&effort{wait: &waitPolicy{}, since: time.Now().Add(-time.Hour)})
			if want := left + 2*time.Millisecond + after; pause != want {
				t.Errorf("at position %d the pause is %v; want %v", position, pause, want)
			}
		}
	})
}
