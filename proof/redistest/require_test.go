package redistest

import (
	"strings"
	"testing"
)

func TestAPackageThatLeftTestsOutSaysHowManyAndWhy(t *testing.T) {
	for _, c := range []struct {
		left []string // test, reason, test, reason
		says string
	}{
		{nil, ""},
		{[]string{"TestA", "no server", "TestB", "no compiler", "TestC/sub", "no server", "TestA", "no server"},
			"LEFT OUT, tests of redistest.test: 2 because no server; 1 because no compiler. `make test` installs what they need"},
	} {
		var l tally
		for i := 0; i < len(c.left); i += 2 {
			l.note(c.left[i], c.left[i+1])
		}
		var text strings.Builder
		l.tell(&text)
		if !strings.HasPrefix(text.String(), c.says) || (c.says == "") != (text.Len() == 0) {
			t.Errorf("%v: says %q; want %q", c.left, text.String(), c.says)
		}
	}
}
