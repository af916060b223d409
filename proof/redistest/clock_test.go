package redistest_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/redistest"
)

func TestTheClockOfAServerJumpsAndItsKeysWithIt(t *testing.T) {
	s := redistest.Start(t, redistest.WithMovableClock())
	clock := func() time.Time {
		t.Helper()
		reply, err := s.Do("TIME")
		if err != nil {
			t.Fatal(err)
		}
		seconds, err := strconv.ParseInt(reply.([]any)[0].(string), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Unix(seconds, 0)
	}
	exists := func() bool {
		t.Helper()
		n, err := s.Do("EXISTS", "key")
		if err != nil {
			t.Fatal(err)
		}
		return n == int64(1)
	}
	for _, by := range []time.Duration{0, time.Hour, -time.Hour} {
		s.MoveClock(0)
		if _, err := s.Do("SET", "key", "value", "PX", "60000"); err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		s.MoveClock(by)
		at := clock()
		if at.Before(before.Add(by-time.Second)) || at.After(time.Now().Add(by)) {
			t.Errorf("moved by %v, it shows %v", by, at)
		}
		if exists() != (by <= 0) {
			t.Errorf("moved by %v, a key of a minute exists: %v", by, exists())
		}
	}
	s.Kill()
	s.Restart()
	if at := clock(); at.After(time.Now().Add(-time.Minute)) {
		t.Errorf("after a restart it shows %v", at)
	}
}
