package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/lockstep-go/lockstep/proof/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func TestAJobIsNotInterruptedBetweenItsTwoLocks(t *testing.T) {
	for name, addr := range map[string]func(t *testing.T) string{
		"embedded": func(*testing.T) string { return "" },
		"redis":    func(t *testing.T) string { return redistest.Start(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := run(t.Context(), &out, addr(t)); err != nil {
				t.Errorf("%v\n%s", err, &out)
			}
		})
	}
}
