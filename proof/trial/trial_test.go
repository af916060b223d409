package trial

import (
	"fmt"
	"testing"
	"time"
)

func TestABodyThatFailsDoesNotFailTheTest(t *testing.T) {
	for name, c := range map[string]struct {
		body func(t testing.TB)
		want string
	}{
		"passes": {func(testing.TB) {}, "[]"},
		"errors": {func(t testing.TB) { t.Error("one"); t.Errorf("%d", 2) }, "[one 2]"},
		"ends":   {func(t testing.TB) { defer t.Error("two"); t.Fatalf("%d", 1) }, "[1 two]"},
		"stays":  {func(t testing.TB) { end(t); t.Error("two") }, "[1]"},
		"cleans": {func(t testing.TB) { t.Cleanup(func() { t.Error("last") }); t.Fatal("first") }, "[first last]"},
		"cleans again": {func(t testing.TB) {
			t.Cleanup(func() { t.Error("last") })
			t.Cleanup(func() {
				t.Cleanup(func() { t.Error("second") })
				t.Error("first")
			})
		}, "[first second last]"},
		"ends in a cleanup": {func(t testing.TB) {
			t.Cleanup(func() { t.Error("last") })
			t.Cleanup(func() { t.Fatal("first") })
		}, "[first last]"},
		"is told":  {func(t testing.TB) { t.Error("one"); t.Error(t.Failed()) }, "[one true]"},
		"is ended": {func(t testing.TB) { <-t.Context().Done(); t.Error("late") }, "[late]"},
	} {
		if got := fmt.Sprint(Failures(t, 10*time.Millisecond, c.body)); got != c.want {
			t.Errorf("%s: %s; want %s", name, got, c.want)
		}
	}
}

func end(t testing.TB) { t.Fatalf("%d", 1) }
