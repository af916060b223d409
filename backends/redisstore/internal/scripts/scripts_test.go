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
		if Grants(s.Call(nil)) != want || Grants(s.Full(s.Call(nil))) != want {
			t.Errorf("Grants is not %v for\n%s", want, source)
		}
	}
}

// TestAScriptGrantsOrIsForAHold: a new script is for one of both, or for an operator.
func TestAScriptGrantsOrIsForAHold(t *testing.T) {
	grants := []Script{Acquire, Enqueue, Numbered, Number, Enter, EnterAlone, EnterNumbered, Transfer, TransferNumbered, TransferHold, TransferHoldNumbered}
	keeps := []Script{Extend, Release, Pass, Quit, Raise, Renew, Leave, LeaveAlone, Withdraw}
	for i, s := range append(append(grants, keeps...), Inspect, Evict) {
		for _, command := range [][]any{s.Call(nil), s.Full(s.Call(nil))} {
			isGrant, isKept := Grants(command), Keeps(command)
			if isGrant != (i < len(grants)) || isKept != (i >= len(grants) && i < len(grants)+len(keeps)) {
				t.Errorf("script %d grants: %v, is for a hold: %v", i, isGrant, isKept)
			}
		}
	}
}
