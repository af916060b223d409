package command

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// hold and keyState are the JSON of backends.Hold and backends.KeyState.
type hold struct {
	Holder  string `json:"holder,omitempty"`
	LeftMS  int64  `json:"left_ms"`
	Print   string `json:"print,omitempty"`
	Slot    *int   `json:"slot,omitempty"`
	Foreign bool   `json:"foreign,omitempty"`
	Evicted bool   `json:"evicted,omitempty"`
}

type keyState struct {
	Key      string   `json:"key"`
	Store    string   `json:"store,omitempty"` // in a quorum
	Held     bool     `json:"held"`
	Holds    []hold   `json:"holds"`
	Holding  int      `json:"holding"`
	AtMostMS int64    `json:"held_at_most_ms,omitempty"`
	Group    string   `json:"group,omitempty"`
	Fence    uint64   `json:"fence,omitempty"`
	Waiters  []string `json:"waiters,omitempty"`
	Waiting  *int     `json:"waiting"` // null: the store can't tell
	Reserved int      `json:"reserved,omitempty"`
	Foreign  bool     `json:"foreign,omitempty"`
	Print    string   `json:"print,omitempty"`
}

func (c *cli) asJSON(key, store string, s backends.State) keyState {
	k := keyState{
		Key: key, Store: store, Held: isHeld(s), Holds: []hold{}, Holding: s.Holding, Group: s.Group, Fence: s.Fence,
		Waiters: s.Waiters, Reserved: s.Reserved, Foreign: s.Foreign, Print: s.Print,
	}
	if age, ok := c.heldAtMost(s); ok {
		k.AtMostMS = age.Milliseconds()
	}
	if s.Waiting != backends.NotKnown {
		k.Waiting = &s.Waiting
	}
	for _, h := range s.Holds {
		j := hold{Holder: h.Holder, LeftMS: h.Left.Milliseconds(), Print: h.Print, Foreign: h.Foreign, Evicted: h.Evicted}
		if h.Slot >= 0 {
			j.Slot = &h.Slot
		}
		k.Holds = append(k.Holds, j)
	}
	return k
}

// isHeld tells whether a key keeps callers out.
func isHeld(s backends.State) bool { return s.Holding > 0 || s.Reserved > 0 || s.Foreign }

// inspect asks all stores for a key, each for a State. A node of a quorum may fail.
func (c *cli) inspect(ctx context.Context, stores []*Store, key string) (states []backends.State, errs []error) {
	states, errs = make([]backends.State, len(stores)), make([]error, len(stores))
	for i, s := range stores {
		states[i], errs[i] = c.inspectOne(ctx, s, key)
	}
	return states, errs
}

func (c *cli) inspectOne(ctx context.Context, s *Store, key string) (backends.State, error) {
	inspector, ok := s.Backend.(backends.Inspector)
	if !ok {
		return backends.State{}, usage("%s does not tell who holds a lock", s.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	state, err := inspector.Inspect(ctx, key)
	return state, c.told(err)
}

// enough is nil if so many nodes have answered that their answer counts.
func (c *cli) enough(stores []*Store, errs []error) error {
	answers := 0
	for _, err := range errs {
		if err == nil {
			answers++
		}
	}
	if answers >= c.need(len(stores)) {
		for i, err := range errs {
			if err != nil {
				c.say("node %d, %s: %v", i+1, stores[i].Name, err)
			}
		}
		return nil
	}
	return errors.Join(errs...)
}

// told says which limit a call has met.
func (c *cli) told(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the store did not answer within %v (-timeout): %w", c.timeout, err)
	}
	return err
}

// need is how many of n nodes make a quorum.
func (c *cli) need(n int) int { return cmp.Or(c.quorum, n/2+1) }

func nodeName(stores []*Store, i int) string {
	if len(stores) == 1 {
		return ""
	}
	return stores[i].Name
}

func inspectCommand() *command {
	return &command{
		name: "inspect", args: "[FLAGS] NAME", atLeast: 1, atMost: 1, summary: "show who holds a lock, until when, and who waits",
		text: `A holder has the label that its program gave it (locker.WithHolder). The print names the hold for
lockstep release. The number is the one that the key got last. Where the store takes its numbers from a clock, it shows
for how long the lock has been held at most.

What is shown may be over when you read it. It is for people: a program that acts on it needs the lock.`,
		example: []example{{"lockstep inspect invoice/42", ""}, {"lockstep inspect -json invoice/42 | jq .holds", ""}},
		exits:   asking,
		setup: func(c *cli, _ *flag.FlagSet) func(context.Context, []string) error {
			return func(ctx context.Context, args []string) error {
				stores, err := c.open(ctx, 0)
				if err != nil {
					return err
				}
				defer shut(stores)
				states, errs := c.inspect(ctx, stores, args[0])
				if err := c.enough(stores, errs); err != nil {
					return err
				}
				return c.showStates(args[0], stores, states, errs)
			}
		},
	}
}

// showStates shows a key as the nodes that have answered have it, and how to free it.
func (c *cli) showStates(key string, stores []*Store, states []backends.State, errs []error) error {
	for i, s := range states {
		switch {
		case errs[i] != nil:
		case c.json:
			if err := c.print(c.out, c.asJSON(key, nodeName(stores, i), s)); err != nil {
				return err
			}
		default:
			c.describe(c.out, key, nodeName(stores, i), s)
		}
	}
	if !c.json {
		c.howToFree(key, states)
	}
	return nil
}

// describe writes a State for people.
func (c *cli) describe(w io.Writer, key, node string, s backends.State) {
	if node != "" {
		key += "  on " + node
	}
	put(w, "%s\n", printable(key))
	switch {
	case s.Foreign && s.Holding == 0:
		put(w, "  held by    a value without an end, which no lease wrote%s\n", optional("   print ", s.Print))
	case !isHeld(s):
		put(w, "  free\n")
	}
	for _, h := range s.Holds {
		put(w, "  held by    %s   %s left   print %s%s\n", who(h), shortly(h.Left), h.Print, slot(h))
	}
	if more := s.Holding - len(s.Holds); more > 0 {
		put(w, "             and %d more\n", more)
	}
	if s.Reserved > 0 {
		put(w, "  reserved   for %d\n", s.Reserved)
	}
	if age, ok := c.heldAtMost(s); ok {
		put(w, "  held for   ≤%s\n", shortly(age))
	}
	if s.Fence > 0 {
		put(w, "  number     %d\n", s.Fence)
	}
	switch {
	case s.Waiting > 0:
		put(w, "  waiting    %d%s\n", s.Waiting, optional(": ", strings.Join(labels(s.Waiters), ", ")))
	case s.Waiting == backends.NotKnown:
		put(w, "  waiting    not known: this store keeps no queue\n")
	}
}

// howToFree shows the commands that free a lock.
func (c *cli) howToFree(key string, states []backends.State) {
	release := "lockstep"
	for _, u := range c.urls {
		release += " -store " + shellWord(u)
	}
	if c.file != "" {
		release += " -store-file " + shellWord(c.file)
	}
	if c.prefix != os.Getenv(prefixVariable) {
		release += " -key-prefix " + shellWord(c.prefix)
	}
	release += " release " + shellWord(key)
	if prints := printsOf(states, false); len(prints) > 0 {
		if slices.ContainsFunc(states, mayBeNoLock) {
			release += " -foreign"
			put(c.out, "other software may have written it: look at it with the tools of the store first\n")
		}
		put(c.out, "to free it by force: %s -print %s\n", release, strings.Join(prints, " -print "))
	}
	if prints := printsOf(states, true); len(prints) > 0 {
		put(c.out, "to open it before, if its last holder has stopped for sure: %s -now -print %s\n", release, strings.Join(prints, " -print "))
	}
}

// mayBeNoLock tells whether a release by force needs -foreign.
func mayBeNoLock(s backends.State) bool {
	return s.Foreign || slices.ContainsFunc(s.Holds, func(h backends.Hold) bool { return h.Foreign })
}

// printsOf are the prints of the holds that were ended by force, or of all others.
func printsOf(states []backends.State, evicted bool) (all []string) {
	for _, s := range states {
		for _, h := range s.Holds {
			if h.Evicted == evicted {
				all = append(all, h.Print)
			}
		}
		if s.Print != "" && !evicted {
			all = append(all, s.Print)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func who(h backends.Hold) string {
	name := h.Holder
	if name == "" {
		name = "unknown"
	}
	switch {
	case h.Evicted:
		return "nobody: closed by " + name
	case h.Foreign:
		return "other software"
	}
	return name
}

func slot(h backends.Hold) string {
	if h.Slot < 0 {
		return ""
	}
	return "   slot " + strconv.Itoa(h.Slot)
}

func labels(waiters []string) (all []string) {
	for _, w := range waiters {
		if w == "" {
			w = "unknown"
		}
		all = append(all, w)
	}
	return all
}

func optional(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

// heldAtMost is how long ago the last number of the key was drawn, if it is a time in microseconds, as
// stores with a clock draw it. A hold without a number may have come later, so it is an upper limit.
func (c *cli) heldAtMost(s backends.State) (time.Duration, bool) {
	d := time.Since(time.UnixMicro(int64(s.Fence & (1<<62 - 1))))
	return max(d, 0), !c.ageless && s.Fence > 0 && s.Holding > 0 && d > -time.Minute && d < 10*365*24*time.Hour
}

// shortly is a duration with two digits or so.
func shortly(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// printable is a key as a terminal may show it.
func printable(key string) string {
	if strings.ContainsFunc(key, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(key)
	}
	return key
}

// shellWord is text as a shell takes it.
func shellWord(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/_.:=,+%@-"
	if text != "" && strings.Trim(text, plain) == "" && text[0] != '-' {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

func testCommand() *command {
	return &command{
		name: "test", args: "[FLAGS] NAME", atLeast: 1, atMost: 1, summary: "tell by the exit code whether a lock is held",
		text:    `The answer may be over when it is read. To act only if a lock is free, use lockstep run -n.`,
		example: []example{{"lockstep test deploy || echo 'a deployment is running'", ""}},
		exits:   with([]exit{{"75", "it is held"}}, exit{"0", "it is free"}, asking[1], asking[2], asking[3]),
		setup: func(c *cli, _ *flag.FlagSet) func(context.Context, []string) error {
			return func(ctx context.Context, args []string) error {
				stores, err := c.open(ctx, 0)
				if err != nil {
					return err
				}
				defer shut(stores)
				states, errs := c.inspect(ctx, stores, args[0])
				if err := c.enough(stores, errs); err != nil {
					return err
				}
				free := 0
				for i, s := range states {
					if errs[i] == nil && !isHeld(s) {
						free++
					}
				}
				if free < c.need(len(stores)) {
					return &exitError{code: exitHeld}
				}
				return nil
			}
		},
	}
}
