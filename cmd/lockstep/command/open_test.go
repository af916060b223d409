package command

import (
	"strings"
	"testing"
	"time"
)

func TestNoErrorShowsAPassword(t *testing.T) {
	for text, secret := range map[string]bool{
		"redis://h:6379": false, "redis://user@h": false, "redis://:pw@h": true, "redis://u:p/w@h": true, "redis://u:p@w@h:1": true,
		"redis+sentinel://h:26379/m?password=pw": true, "postgres:///db?PASSWORD=pw": true, "unix:///run/redis.sock": false, "redis+cluster://a:1,b:2": false,
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
