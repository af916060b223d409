package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// checkOutcomes is TRI: an attempt is granted, held or unknown, and unknown is never reported as
// held.
//
//   - If it is granted, a quorum of nodes has granted it.
//   - If it is held, at least one node has said so, at an instant at which no quorum was possible
//     any more, and nodes that failed were not the reason.
//   - An earlier attempt of the same process that failed is no reason for held.
//
// NOGHOST checks that an unknown attempt is cleaned up.
func checkOutcomes(h *History) []string {
	if h.Strategy.Legacy {
		return nil // a recipe makes an attempt of several commands
	}
	asked := map[string][]*Message{}
	for _, m := range h.Messages {
		if slices.Contains(asking, m.Op) {
			asked[m.Token] = append(asked[m.Token], m)
		}
	}
	found := h.haunted()
	for _, a := range h.Attempts {
		// Nobody learns the outcome, and requests that were not sent are in no message.
		if h.death(a.Client) <= a.Answered {
			continue
		}
		switch a.Outcome {
		case Granted:
			if v := h.count(a, asked[a.Token], a.Answered); v.granted < h.Strategy.Quorum {
				found = append(found, fmt.Sprintf("%s was granted at %v, by %s", a.Token, a.Answered, v))
			}
		case Held:
			if v := h.count(a, asked[a.Token], a.Answered); !h.mayBeHeld(a, asked[a.Token]) {
				found = append(found, fmt.Sprintf("%s was held at %v, by %s", a.Token, a.Answered, v))
			}
		}
	}
	return found
}

var asking = []string{"SetNX", "SetNXQueued", "SetNXNumbered", "SetNXFenced", "RaiseFence", "Enter"}

// haunted finds attempts on one node that were held by the token of an earlier attempt of the same
// process, which had failed and whose cleanup was not answered. A token that the node stored after
// its attempt had failed does not count: it may have arrived after the answer to the cleanup. Nor
// does one whose request was answered with no: the network has doubled it, and stored the second.
func (h *History) haunted() []string {
	if h.Strategy.Nodes > 1 || h.Strategy.Shared || !h.Strategy.Tokens {
		return nil
	}
	failed := map[string]*Attempt{}
	heldUp := map[string]*Attempt{}
	refused := map[string]bool{}
	for _, m := range h.Messages {
		if slices.Contains(asking, m.Op) && strings.Contains(m.Trouble, "doubled") && m.Kind == No {
			refused[m.Token] = true
		}
	}
	for _, a := range h.Attempts {
		switch {
		case refused[a.Token] && a.Outcome == Unknown:
		case a.Outcome == Unknown:
			failed[a.Token] = a
		case a.Outcome == Held:
			heldUp[a.Token] = a
		}
	}
	// by token; the last in the way of each
	stored, inTheWay := map[string]*State{}, map[string]*State{}
	for _, s := range h.States {
		switch {
		case !slices.Contains(asking, s.Op):
		case s.OK:
			stored[s.Token] = s
		case s.Was:
			inTheWay[s.Token] = s
		}
	}
	var found []string
	for token, a := range heldUp {
		s := inTheWay[token]
		if s == nil || failed[s.Before] == nil || stored[s.Before] == nil {
			continue
		}
		ghost, was := failed[s.Before], stored[s.Before]
		if ghost.Client == a.Client && ghost.Answered <= a.Began && was.At <= ghost.Answered && s.At < was.At+ghost.TTL && !h.cleanedUp(ghost, a) {
			found = append(found, fmt.Sprintf("%s was held at %v because of %s, which had failed at %v", token, a.Answered, s.Before, ghost.Answered))
		}
	}
	slices.Sort(found)
	return found
}

// cleanedUp tells whether a cleanup of the ghost was answered before the last request of the
// attempt.
func (h *History) cleanedUp(ghost, before *Attempt) bool {
	var asked time.Duration
	for _, m := range h.Messages {
		if m.Token == before.Token && slices.Contains(asking, m.Op) {
			asked = max(asked, m.Sent)
		}
	}
	return slices.ContainsFunc(h.Messages, func(m *Message) bool {
		return m.Token == ghost.Token && m.Op == "DeleteIf" && (m.Kind == Yes || m.Kind == No) && m.Answered <= asked
	})
}

// mayBeHeld tells whether there was an instant at which the attempt could be held.
func (h *History) mayBeHeld(a *Attempt, asked []*Message) bool {
	instants := []time.Duration{a.Answered, a.Began + min(nodeLimit, a.TTL)}
	for _, m := range asked {
		instants = append(instants, m.Answered, m.Sent+min(nodeLimit, a.TTL))
	}
	return slices.ContainsFunc(instants, func(at time.Duration) bool {
		v := h.count(a, asked, at)
		spare := h.Strategy.Nodes - h.Strategy.Quorum
		return at <= a.Answered && v.held > 0 && v.failed <= spare && h.Strategy.Nodes-v.held-v.failed < h.Strategy.Quorum
	})
}

// votes are the answers of the nodes to an attempt at some instant.
type votes struct{ granted, held, failed int }

func (v votes) String() string {
	return fmt.Sprintf("%d nodes that granted it, %d where it is held and %d that failed", v.granted, v.held, v.failed)
}

// count counts a node that is silent beyond the limit, or was not asked, as one that failed. If
// nodes are asked in sequence, the limit and the lease of a node count from its own request. A node
// whose number is greater than that of another, or that was overtaken before it was raised, counts
// as held.
func (h *History) count(a *Attempt, asked []*Message, at time.Duration) (v votes) {
	said := map[int]Reply{}
	sent := map[int]time.Duration{}
	fences := map[int]uint64{}
	for _, m := range asked {
		if _, again := sent[m.Node]; !again {
			sent[m.Node] = m.Sent
		}
		switch {
		case m.Answered <= at && m.Kind == Yes && m.Op != "RaiseFence" && m.Answered >= lease(m.Sent, a.TTL):
			// the node's own lease had ended, which began with the request to this node. A node that is
			// raised late has granted before.
			said[m.Node] = Fails
		case m.Answered <= at:
			said[m.Node] = m.Kind
			fences[m.Node] = max(fences[m.Node], m.Fence)
		case m.Op == "RaiseFence" && m.Sent <= at:
			said[m.Node] = Silence
		}
	}
	var numbers []uint64
	for node := 1; node <= h.Strategy.Nodes; node++ {
		_, wasAsked := sent[node] // the quorum does not ask a silent node
		switch {
		case said[node] == Yes:
			v.granted++
			numbers = append(numbers, fences[node])
		case said[node] == No:
			v.held++
		case said[node] == Fails || !wasAsked || at-a.Began >= min(nodeLimit, a.TTL):
			v.failed++
		}
	}
	if a.Outcome == Held && len(numbers) > 0 {
		for _, n := range numbers {
			if n > slices.Min(numbers) {
				v.granted--
				v.held++
			}
		}
	}
	return v
}

// nodeLimit is how long redlock waits for a node.
const nodeLimit = 500 * time.Millisecond
