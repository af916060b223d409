package main

import (
	"bytes"
	"os"
	"regexp"
	"testing"

	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/redis/go-redis/v9/logging"
)

func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(redistest.Main(m))
}

func TestEachCallIsATraceAndCounted(t *testing.T) {
	for name, addr := range map[string]func(t *testing.T) string{
		"embedded": func(*testing.T) string { return "" },
		"redis":    func(t *testing.T) string { return redistest.Start(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := run(t.Context(), &out, addr(t)); err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
			for _, want := range []string{
				`(?m)^holds .*\n  lock acquire .* acquired\n  lock hold .*\n    work .*\n  lock release `,
				`(?m)^waits .*\n  lock acquire .* acquired\n  lock hold .*\n    work .*\n  lock release `,
				`(?m)^tries .*\n  lock acquire .* busy$`,
				`(?m)^gives up .*\n  lock acquire .* timeout$`,
				`(?m)^loses .*\n  lock acquire .* acquired\n  lock hold .* (stolen|expired)$`, // expired: on a slow machine
				`(?m)^lock\.acquire\.duration +lock\.outcome=acquired +3, `,
				`(?m)^lock\.losses +lock\.lost\.reason=(stolen|expired) +1$`,
			} {
				if !regexp.MustCompile(want).Match(out.Bytes()) {
					t.Errorf("no %s in:\n%s", want, &out)
				}
			}
		})
	}
}

func TestAServerThatIsNotThereIsAnError(t *testing.T) {
	if err := run(t.Context(), &bytes.Buffer{}, "127.0.0.1:1"); err == nil {
		t.Error("run = nil")
	}
}
