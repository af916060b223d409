package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func TestTheLateWriteIsRefusedByTheGuardAlone(t *testing.T) {
	for name, addr := range map[string]func(t *testing.T) string{
		"embedded": func(*testing.T) string { return "" },
		"redis":    func(t *testing.T) string { return redistest.Start(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := run(t.Context(), &out, addr(t)); err != nil {
				t.Errorf("%v\n%s", err, &out)
			}
			for _, want := range []string{
				"\nwithout a guard  it says \"holder 1\"", "\nwith a guard     it says \"holder 2\"", "lock lost: its time ran out",
			} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in:\n%s", want, &out)
				}
			}
		})
	}
}

func TestTheProgramFailsIfTheGuardDoesNotGuard(t *testing.T) {
	defer func(original *redis.Script) { guard = original }(guard)
	guard = redis.NewScript(`redis.call('HSET', KEYS[1], 'fence', ARGV[1], ARGV[2], ARGV[3]) return 1`)
	var out bytes.Buffer
	err := run(t.Context(), &out, "")
	if err == nil || !strings.Contains(err.Error(), `the document with a guard says "holder 1"`) {
		t.Errorf("run = %v\n%s", err, &out)
	}
}

func TestAServerThatIsNotThereIsAnError(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	if err := run(t.Context(), &bytes.Buffer{}, server.Addr()); err == nil {
		t.Error("run = nil")
	}
}
