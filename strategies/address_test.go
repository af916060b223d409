package strategies_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/strategies"
)

func TestNoErrorShowsThePasswordOfAnAddress(t *testing.T) {
	for _, c := range []struct{ addr, password, shown string }{
		{"redis://user:secret@host:6379/1", "secret", "redis://xxxxx@host:6379/1"},
		{"redis://:secret@host", "secret", "redis://xxxxx@host"},
		{"user:secret@host:6379", "secret", "xxxxx@host:6379"},
		{"redis://secret@host", "secret", "redis://xxxxx@host"},
		{"redis://user:sec%72et@host", "secret", "redis://xxxxx@host"},
		{"redis://user:sec@sec@host", "sec@sec", "redis://xxxxx@host"},
		{"redis://user:sec/sec%zz@host", "sec/sec%zz", "redis://xxxxx@host"}, // not a URL
	} {
		for says, fail := range map[string]error{
			"down":               errDown,
			"dial " + c.shown:    fmt.Errorf("dial %s: %w", c.addr, errDown),
			"no password xxxxx:": fmt.Errorf("no password %s: %w", c.password, errDown),
			"it is not a URL":    errors.Join(&url.Error{Op: "parse", URL: c.addr, Err: errors.New(`invalid port ":sec" after host`)}, errDown),
		} {
			from := strategies.Backends{"b": func(context.Context, string) (backends.Store, func() error, error) { return nil, nil, fail }}
			_, _, err := strategies.New(t.Context(), strategies.Config{Strategy: "single", Backend: "b", Addrs: []string{c.addr}}, from)
			if !errors.Is(err, errDown) {
				t.Fatalf("%s: New = %v", c.addr, err)
			}
			text := fmt.Sprintf("%+v", err)
			if begin := fmt.Sprintf("lockstep: choose: open b at %q: ", c.shown); !strings.HasPrefix(text, begin+says) {
				t.Errorf("%s:\n%s; want\n%s%s", c.addr, text, begin, says)
			}
			if strings.Contains(text, "sec") {
				t.Errorf("%s: %s", c.addr, text)
			}
		}
	}
}

func TestAnAddressWithoutAPasswordIsShownAsItIs(t *testing.T) {
	for _, addr := range []string{"host:6379", "redis://host:6379/1", "unix:///run/redis.sock", ""} {
		from := strategies.Backends{"b": func(context.Context, string) (backends.Store, func() error, error) {
			return memory.New(), nil, fmt.Errorf("dial %s: %w", addr, errDown)
		}}
		_, _, err := strategies.New(t.Context(), strategies.Config{Strategy: "single", Backend: "b", Addrs: []string{addr}}, from)
		if want := fmt.Sprintf("lockstep: choose: open b at %q: dial %s: down", addr, addr); err == nil || err.Error() != want {
			t.Errorf("%v; want %s", err, want)
		}
	}
}
