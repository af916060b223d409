package simulation

import (
	"fmt"
	"time"
)

// checkOwner is OWN: only the holder's token deletes, extends or counts. So no command with one
// token changes a key that has another. And once a release has begun, nothing extends: a Release is
// not sent while an extension is under way, unless that has hung for as long as a Client waits.
func checkOwner(h *History) []string {
	if h.Strategy.Legacy {
		return nil
	}
	found := h.trespasses()
	for _, d := range h.Holds {
		if r := h.firstRelease(d); r != nil {
			for _, e := range h.Extensions {
				if h.during(d, e) && !confirms(d, e) && e.Answered > r.Sent && (e.Began > r.Sent || r.Sent < d.Unlocking+joinLimit) {
					found = append(found, fmt.Sprintf("%s was released at %v while its extension of %v was under way", d.Token, r.Sent, e.Began))
				}
			}
		}
	}
	return found
}

// joinLimit is how long the Client waits for an extension that ignores its ctx.
const joinLimit = 100 * time.Millisecond

// firstRelease returns the release of Unlock. The release that a Client sends for a lost lock is
// another: if a wall clock has ended the lease, Unlock says so at once.
func (h *History) firstRelease(d *Hold) *Release {
	for _, r := range h.Releases {
		if r.Token == d.Token && d.Lost == "" && (d.UnlockSays != "lost" || d.Unlocked > d.Unlocking) && d.Unlocking != Never && r.Sent >= d.Unlocking && r.Sent < h.handedOver(d) {
			return r
		}
	}
	return nil
}

func (h *History) trespasses() []string {
	var found []string
	for _, s := range h.States {
		if s.Token == "" || s.Op == "SetNX" || s.Op == "SetNXFenced" || s.Op == "SetNXQueued" || s.Op == "SetNXNumbered" || s.Op == "Enter" {
			continue
		}
		switch {
		case h.Strategy.Shared:
			if gone := s.Was && !s.Is; gone && !s.OK && s.Until > s.At {
				found = append(found, fmt.Sprintf("node %d: %s of %s ended a hold of another", s.Node, s.Op, s.Token))
			}
		case s.Was && s.Before != s.Token && (s.After != s.Before || s.Ends != s.Until || !s.Is):
			found = append(found, fmt.Sprintf("node %d at %v: %s of %s changed the key of %s", s.Node, s.At, s.Op, s.Token, s.Before))
		case s.OK && (!s.Was || s.Before != s.Token):
			found = append(found, fmt.Sprintf("node %d at %v: %s of %s was done, and the key had %q", s.Node, s.At, s.Op, s.Token, s.Before))
		}
	}
	return found
}
