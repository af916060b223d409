package command

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

func TestNoErrorShowsAPassword(t *testing.T) {
	for text, secret := range map[string]bool{
		"redis://h:6379": false, "redis://user@h": false, "redis://:pw@h": true, "redis://u:p/w@h": true, "redis://u:p@w@h:1": true,
		"redis+sentinel://h:26379/m?password=pw": true, "postgres:///db?PASSWORD=pw": true, "unix:///run/redis.sock": false, "redis+cluster://a:1,b:2": false,
		"nats://pwtoken@h": true, "nats://h:4222": false, "postgres://h/db?sslmode=require": false,
		"postgres://h/db?listener=postgres%3A%2F%2Fh%3A5432%2Fdb": false, "postgres://h/db?listener=postgres%3A%2F%2Fu%3Apw%40h%2Fdb": true,
	} {
		if hasPassword(text) != secret {
			t.Errorf("hasPassword(%q) = %v", text, !secret)
		}
		if name := public(text); strings.Contains(name, "pw") || strings.Contains(name, "p@") {
			t.Errorf("public(%q) = %q", text, name)
		}
		if _, _, err := ParseURL(text); err != nil && (strings.Contains(err.Error(), "pw") || strings.Contains(err.Error(), "p/w")) {
			t.Errorf("ParseURL(%q): %v", text, err)
		}
	}
	u, others, err := ParseURL("redis+cluster://u:p@a:1,b:2,c:3/x?y=z")
	if err != nil || u.Host != "a:1" || strings.Join(others, " ") != "b:2 c:3" || u.Path != "/x" {
		t.Errorf("%v, %v, %v", u, others, err)
	}
}

func TestLeastTTLHasRoomForTenRoundTrips(t *testing.T) {
	for p99, want := range map[time.Duration]time.Duration{0: 10 * time.Millisecond, time.Millisecond: 13 * time.Millisecond, 50 * time.Millisecond: 508 * time.Millisecond} {
		if got := leastTTL(p99); got < want-time.Millisecond || got > want+time.Millisecond {
			t.Errorf("leastTTL(%v) = %v, want %v", p99, got, want)
		}
	}
}

func TestARenewalIsNoChange(t *testing.T) {
	one, two := backends.Hold{Print: "1", Left: time.Second}, backends.Hold{Print: "2", Left: 2 * time.Second}
	before := change(backends.State{Holds: []backends.Hold{one, two}, Holding: 2})
	one.Left = 3 * time.Second
	if after := change(backends.State{Holds: []backends.Hold{two, one}, Holding: 2}); after != before {
		t.Errorf("%q after %q", after, before)
	}
	one.Evicted = true
	if after := change(backends.State{Holds: []backends.Hold{two, one}, Holding: 2}); after == before {
		t.Error("an eviction is no change")
	}
}

func TestDurations(t *testing.T) {
	var d time.Duration
	for text, want := range map[string]time.Duration{"30": 30 * time.Second, "1.5": 1500 * time.Millisecond, "1m30s": 90 * time.Second} {
		if err := (seconds{&d}).Set(text); err != nil || d != want {
			t.Errorf("%s = %v, %v", text, d, err)
		}
	}
	for _, text := range []string{"", "x", "-1s", "-3"} {
		if (seconds{&d}).Set(text) == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
