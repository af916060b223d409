package redistest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/redistest"
)

// TestAPowerCutLosesWhatWasNotSyncedAndAKillDoesNot writes until the server ends, and then looks
// for all acknowledged writes. It does not kill a server that syncs each second, since this may
// lose some too: while a sync is under way, redis-server acknowledges writes that it keeps in
// memory for up to two seconds.
func TestAPowerCutLosesWhatWasNotSyncedAndAKillDoesNot(t *testing.T) {
	cut := func(s *redistest.Server) { s.CutPower() }
	for _, c := range []struct {
		says  string
		fsync string
		end   func(*redistest.Server)
		loses bool
	}{
		{"a kill, synced always", "always", (*redistest.Server).Kill, false},
		{"a kill, never synced", "no", (*redistest.Server).Kill, false},
		{"a power cut, synced always", "always", cut, false},
		{"a power cut, synced each second", "everysec", cut, true},
		{"a power cut, never synced", "no", cut, true},
	} {
		t.Run(c.says, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.WithVolatileDisk(), redistest.WithArgs("--appendonly", "yes", "--appendfsync", c.fsync))
			var acknowledged []string
			for round := range 3 { // the next round finds the keys of this one, or loses them
				ended := make(chan struct{})
				for i := 0; ; i++ {
					if i == 50 {
						go func() {
							c.end(s)
							close(ended)
						}()
					}
					key := fmt.Sprint(round, " ", i)
					if reply, err := s.Do("SET", key, "value"); err != nil || reply != "OK" {
						if i < 50 {
							t.Fatal(reply, err)
						}
						break
					}
					acknowledged = append(acknowledged, key)
				}
				<-ended
				s.Restart()
			}
			lost := 0
			for _, key := range acknowledged {
				value, err := s.Do("GET", key)
				if err != nil {
					t.Fatal(err)
				}
				if value != "value" {
					lost++
				}
			}
			t.Logf("%d of %d lost", lost, len(acknowledged))
			if len(acknowledged) == 0 || (lost > 0) != c.loses {
				t.Errorf("lost %d of %d that were acknowledged; want some: %v", lost, len(acknowledged), c.loses)
			}
		})
	}
}

func TestAPowerCutLeavesTheBeginningOfAFileThatWasSyncedHalfway(t *testing.T) {
	s := redistest.Start(t, redistest.WithVolatileDisk(), redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always"))
	do := doer(t, s)
	do("OK", "SET", "synced", "value")
	do("OK", "CONFIG", "SET", "appendfsync", "no")
	do("OK", "SET", "not synced", "value")
	s.Kill()
	s.Restart()
	do("value", "GET", "not synced")
	s.CutPower() // the data that survived a kill is still not synced
	s.Restart()
	do("value", "GET", "synced")
	do(nil, "GET", "not synced")
}

// A rewritten log is in another file, under another name.
func TestAPowerCutSparesALogThatWasRewritten(t *testing.T) {
	s := redistest.Start(t, redistest.WithVolatileDisk(), redistest.WithArgs("--appendonly", "yes", "--appendfsync", "no"))
	do := doer(t, s)
	do("OK", "SET", "before", "value")
	for round := range 3 { // names and inodes are used again
		do("Background append only file rewriting started", "BGREWRITEAOF")
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			info, err := s.Do("INFO", "persistence")
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("the log is not rewritten: %v, %v", info, err)
			}
			text := info.(string)
			if strings.Contains(text, "aof_rewrite_in_progress:0") && strings.Contains(text, "aof_rewrite_scheduled:0") {
				break
			}
		}
		after := fmt.Sprint("after ", round)
		do("OK", "SET", after, "value")
		s.CutPower()
		s.Restart()
		do("value", "GET", "before")
		do(nil, "GET", after)
	}
}

func doer(t *testing.T, s *redistest.Server) func(want any, args ...string) {
	return func(want any, args ...string) {
		t.Helper()
		if got, err := s.Do(args...); err != nil || got != want {
			t.Fatalf("%q = %v, %v; want %v", args, got, err, want)
		}
	}
}
