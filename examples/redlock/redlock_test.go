package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestTheWorkOutlivesOneServerAndTheLossOfThreeIsTold(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{
		"one stopped: the work goes on", "two more stopped: lockstep: hold \"nightly-report\": lock lost",
		"server 1  failed", "server 2  failed", "server 3  failed",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
}
