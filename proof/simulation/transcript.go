package simulation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// String returns the whole history, one line for each event, in the order of time.
func (h *History) String() string {
	var lines lines
	for _, w := range h.Wants {
		lines.add(w.Began, "%s wants %q%s", w.Worker, w.Key, by(w.Owner))
		lines.add(w.Ended, "%s has %q or stops asking for it", w.Worker, w.Key)
	}
	for _, a := range h.Attempts {
		lines.add(a.Began, "%s attempts %q with token %s, ttl %v", a.Worker, a.Key, a.Token, a.TTL)
		lines.add(a.Answered, "%s is %s%s", a.Token, a.Outcome, a.grant())
	}
	for _, d := range h.Holds {
		lines.add(d.Granted, "%s HOLDS %q by %s until %v", d.Worker, d.Key, d.Token, d.Expires)
		lines.add(d.Unlocking, "%s unlocks %s", d.Worker, d.Token)
		lines.add(d.Unlocked, "%s has unlocked %s: %s", d.Worker, d.Token, d.UnlockSays)
		if d.Keep > 0 {
			lines.add(d.Unlocking, "the work under %s, which is kept for %v, is %s", d.Token, d.Keep, d.Work)
		}
		lines.add(d.Abandoned, "%s abandons %s", d.Worker, d.Token)
		lines.add(d.Ended, "the context of %s ends, Expires %v: %s", d.Token, d.Final, d.Cause)
	}
	for _, s := range h.Several {
		lines.add(s.Began, "%s wants all of %v", s.Worker, s.Keys)
		lines.add(s.Called, "%s works with %v", s.Worker, s.Tokens)
		lines.add(s.CtxEnded, "the ctx of the work of %s ends", s.Worker)
		lines.add(s.Returned, "the work of %s returns", s.Worker)
		lines.add(s.Ended, "the DoAll of %s ends", s.Worker)
	}
	for _, e := range h.Extensions {
		lines.add(e.Began, "extension of %s by %v begins, Expires %v", e.Token, e.TTL, e.Before)
		lines.add(e.Answered, "extension of %s is answered, Expires %v: %s", e.Token, e.After, e.Says)
	}
	for _, r := range h.Releases {
		lines.add(r.Sent, "release of %s is sent", r.Token)
		lines.add(r.Answered, "release of %s is answered: %s", r.Token, r.Says)
	}
	for _, m := range h.Messages {
		lines.add(m.Sent, "%s to node %d%s", m, m.Node, trouble(m.Trouble))
		lines.add(m.Answered, "%s to node %d of %.9f is answered: %s", m, m.Node, m.Sent.Seconds(), m.Reply)
	}
	for _, w := range h.Wakes {
		lines.add(w.Sent, "node %d wakes %s%s", w.Node, w.Waiter, trouble(w.Trouble))
		for _, at := range w.Arrived {
			lines.add(at, "%s receives the wake of %.9f", w.Waiter, w.Sent.Seconds())
		}
	}
	for _, s := range h.States {
		lines.add(s.At, "%s", s)
	}
	for _, s := range h.Strokes {
		lines.add(s.At, "%s: %s", s.who(), s.What)
	}
	for _, d := range h.Deaths {
		lines.add(d.At, "process %s is killed", d.Client)
	}
	for _, j := range h.Jumps {
		lines.add(j.At, "process %s: its wall clock jumps by %v", j.Client, j.By)
	}
	for _, s := range h.Remains {
		lines.add(h.End, "at the end %s", s)
	}
	slices.SortFunc(lines, func(a, b line) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.text, b.text)) })
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %s, seed %d\n", h.Strategy.Name, h.Fault, h.Seed)
	for _, l := range lines {
		fmt.Fprintf(&text, "%14s  %s\n", fmt.Sprintf("%.9f", l.at.Seconds()), l.text)
	}
	return text.String()
}

type line struct {
	at   time.Duration
	text string
}

type lines []line

func (ls *lines) add(at time.Duration, format string, args ...any) {
	if at != Never {
		*ls = append(*ls, line{at, fmt.Sprintf(format, args...)})
	}
}

func (a *Attempt) grant() string {
	if a.Outcome != Granted {
		return ""
	}
	return fmt.Sprintf(" until %v, fence %d", a.Expires, a.Fence)
}

func (m *Message) String() string {
	if m.turn != nil {
		return m.Op + " " + m.Waiter
	}
	if m.Waiter != "" {
		return m.Op + " " + m.Token + " for " + m.Waiter
	}
	if m.Token == "" {
		return m.Op + " of " + m.Worker
	}
	return m.Op + " " + m.Token
}

func (s *State) String() string {
	text := fmt.Sprintf("node %d: %s %s", s.Node, s.Op, s.Token)
	if s.Op == leaves {
		text = fmt.Sprintf("node %d: %s leaves the queue", s.Node, s.Waiter)
	}
	if s.Op == "" {
		text = fmt.Sprintf("node %d", s.Node)
	}
	if !s.Is {
		return text + fmt.Sprintf(": %q is free", s.Key)
	}
	ends := "for ever"
	if s.Ends != Never {
		ends = fmt.Sprintf("until %v", s.Ends)
	}
	return text + fmt.Sprintf(": %q has %q %s", s.Key, s.After, ends)
}

func (s Stroke) who() string {
	if s.Client != "" {
		return "process " + s.Client
	}
	return fmt.Sprintf("node %d", s.Node)
}

func by(owner string) string {
	if owner == "" {
		return ""
	}
	return " as " + owner
}

func trouble(what string) string {
	if what == "" {
		return ""
	}
	return " (" + what + ")"
}
