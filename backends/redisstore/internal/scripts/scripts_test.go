package scripts

import (
	"strings"
	"testing"
)

// TestEveryScriptThatGrantsIsAGrant: the script of the queue grants as well, with a number or without.
func TestEveryScriptThatGrantsIsAGrant(t *testing.T) {
	for _, s := range []Script{
		Acquire, Extend, Release, Enqueue, Numbered, Pass, Quit,
		Number, Raise, Enter, EnterNumbered, Renew, Leave, Withdraw,
	} {
		source := s.source.(string)
		want := strings.Contains(source, grantSource) || strings.HasSuffix(source, enterSource)
		if Grants(s.Call(nil)) != want || Grants(s.Full(nil)) != want {
			t.Errorf("Grants is not %v for\n%s", want, source)
		}
	}
}
