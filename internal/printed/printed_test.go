package printed

import "testing"

func TestACountOfOneHasNoPlural(t *testing.T) {
	for n, want := range map[int]string{0: "0 replicas", 1: "1 replica", 2: "2 replicas"} {
		if got := Count(n, "replica"); got != want {
			t.Errorf("Count(%d) = %q; want %q", n, got, want)
		}
	}
}
