package locker

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
)

// row is what one event does to a line in some states: the fields of the action that are set, and the
// parts of the state that change. Each part is name=value, or name!=value; | stands between several
// values. A value with a star is a fact of the event.
type row struct{ event, in, does, becomes string }

var rows = []row{
	{"enter", "head!=absent", "queue", ""},
	{"enter", "head=absent lock!=ours", "", "head=asleep ttl=* woken=no lock=unknown"},
	{"enter", "head=absent lock=ours", "", "head=asleep ttl=* woken=no"},

	{"sleep", "watch=none fault=0", "beginWatch", "watch=begun"},
	{"sleep", "watch=none fault!=0", "", ""},
	{"sleep", "watch=refused|refusedForAll", "err", ""},
	{"sleep", "watch!=none|refused|refusedForAll", "", ""},
	{"sleep, outlasts", "watch=none fault=0", "beginWatch", "watch=begun"},
	{"sleep, outlasts", "watch=none fault!=0", "", ""},
	{"sleep, outlasts", "watch=refusedForAll", "err", ""},
	{"sleep, outlasts", "watch!=none|refusedForAll", "", ""},

	{"attempt", "handed=no head!=invited watch!=active", "", "head=asking"},
	{"attempt", "handed=no head!=invited watch=active", "named", "head=asking"},
	{"attempt", "handed=no head=invited watch!=active", "joins", "head=following"},
	{"attempt", "handed=no head=invited watch=active", "joins named", "head=following"},
	{"attempt", "handed=yes head!=invited lock!=queued", "lease", "head=following handed=no"},
	{"attempt", "handed=yes head!=invited lock=queued watch=none", "lease", "head=following handed=no"},
	{"attempt", "handed=yes head!=invited lock=queued watch!=none", "endWatch lease", "head=following handed=no watch=none"},
	{"attempt", "handed=yes head=invited lock!=queued", "lease joins", "head=following handed=no"},
	{"attempt", "handed=yes head=invited lock=queued watch=none", "lease joins", "head=following handed=no"},
	{"attempt", "handed=yes head=invited lock=queued watch!=none", "endWatch lease joins", "head=following handed=no watch=none"},

	{"attempt, while the key rests", "", "sleep", ""},
	{"first attempt", "lock!=unknown", "sleep", ""},
	{"first attempt", "lock=unknown handed=no head!=invited watch!=active", "", "head=asking"},
	{"first attempt", "lock=unknown handed=no head!=invited watch=active", "named", "head=asking"},
	{"first attempt", "lock=unknown handed=no head=invited watch!=active", "joins", "head=following"},
	{"first attempt", "lock=unknown handed=no head=invited watch=active", "joins named", "head=following"},
	{"first attempt", "lock=unknown handed=yes head!=invited", "lease", "head=following handed=no"},
	{"first attempt", "lock=unknown handed=yes head=invited", "lease joins", "head=following handed=no"},
	{"first attempt, outlasts", "lock!=unknown", "sleep", ""},
	{"first attempt, outlasts", "lock=unknown fault!=0", "sleep", ""},
	{"first attempt, outlasts", "lock=unknown fault=0 handed=no head!=invited watch!=active", "", "head=asking"},
	{"first attempt, outlasts", "lock=unknown fault=0 handed=no head!=invited watch=active", "named", "head=asking"},
	{"first attempt, outlasts", "lock=unknown fault=0 handed=no head=invited watch!=active", "joins", "head=following"},
	{"first attempt, outlasts", "lock=unknown fault=0 handed=no head=invited watch=active", "joins named", "head=following"},
	{"first attempt, outlasts", "lock=unknown fault=0 handed=yes head!=invited", "lease", "head=following handed=no"},
	{"first attempt, outlasts", "lock=unknown fault=0 handed=yes head=invited", "lease joins", "head=following handed=no"},

	{"held", "", "", "head=asleep lock=held* fault=0"},
	{"failure", "fault=0", "", "head=asleep fault=1*"},
	{"failure", "fault=3", "", "head=asleep fault=4*"},
	{"unknown", "watch=none", "", ""},
	{"unknown", "watch!=none", "endWatch", "watch=none"},

	{"grant, none behind", "handed=no watch=active", "linger", "head=absent fault=0 lock=ours* woken=no"},
	{"grant, none behind", "handed=no watch=none", "remove", "head=absent fault=0 lock=ours* woken=no"},
	{"grant, none behind", "handed=no watch!=active|none", "endWatch remove", "head=absent fault=0 lock=ours* woken=no watch=none"},
	{"grant, none behind", "handed=yes watch=active", "linger lease", "head=absent fault=0 lock=ours* woken=no handed=no"},
	{"grant, none behind", "handed=yes watch=none", "remove lease", "head=absent fault=0 lock=ours* woken=no handed=no"},
	{"grant, none behind", "handed=yes watch!=active|none", "endWatch remove lease", "head=absent fault=0 lock=ours* woken=no handed=no watch=none"},
	{"grant, three behind", "", "promote", "head=asleep ttl=* fault=0 lock=ours* woken=no"},
	{"grant with others, room for none", "", "promote", "head=asleep ttl=* fault=0 lock=unknown"},
	{"grant with room for one", "head!=following", "promote", "head=invited ttl=* fault=0 lock=unknown"},
	{"grant with room for one", "head=following", "promote", "head=asleep ttl=* fault=0 lock=unknown"},
	{"grant with room for three", "head!=following", "promote join=2", "head=invited ttl=* fault=0 lock=unknown"},
	{"grant with room for three", "head=following", "promote", "head=asleep ttl=* fault=0 lock=unknown"},
	{"grant with room for all", "head!=following", "promote join=-2", "head=invited ttl=* fault=0 lock=unknown"},
	{"grant with room for all", "head=following", "promote", "head=asleep ttl=* fault=0 lock=unknown"},
	{"grant with room for all, none behind", "handed=no watch=active", "linger", "head=absent fault=0 lock=unknown"},
	{"grant with room for all, none behind", "handed=no watch=none", "remove", "head=absent fault=0 lock=unknown"},
	{"grant with room for all, none behind", "handed=no watch!=active|none", "endWatch remove", "head=absent fault=0 lock=unknown watch=none"},
	{"grant with room for all, none behind", "handed=yes watch=active", "linger lease", "head=absent fault=0 lock=unknown handed=no"},
	{"grant with room for all, none behind", "handed=yes watch=none", "remove lease", "head=absent fault=0 lock=unknown handed=no"},
	{"grant with room for all, none behind", "handed=yes watch!=active|none", "endWatch remove lease", "head=absent fault=0 lock=unknown handed=no watch=none"},

	{"leave, none behind", "handed=no watch=none", "remove", "head=absent"},
	{"leave, none behind", "handed=no watch!=none", "endWatch remove", "head=absent watch=none"},
	{"leave, none behind", "handed=yes watch=none", "remove lease", "head=absent handed=no"},
	{"leave, none behind", "handed=yes watch!=none", "endWatch remove lease", "head=absent handed=no watch=none"},
	{"leave, one behind", "", "signal promote", "head=asleep ttl=* woken=yes"},

	{"wake", "lock=ours", "", ""},
	{"wake", "lock!=ours", "signal", "woken=yes"},
	{"freed", "lock=ours", "signal", "woken=yes lock=ended"},
	{"freed", "lock!=ours", "signal", "woken=yes"},
	{"watched", "watch=begun", "signal", "woken=yes watch=active"},
	{"watched", "watch!=begun", "", ""},
	{"watch failed", "watch=begun", "signal", "watch=failed*"},
	{"watch failed", "watch!=begun", "", ""},

	{"signal", "watch!=unsupported|broken|forbidden woken=no", "", ""},
	{"signal", "watch!=unsupported|broken|forbidden woken=yes fault=0", "try", "woken=no"},
	{"signal", "watch!=unsupported|broken|forbidden woken=yes fault!=0 handed=no", "", "woken=no"},
	{"signal", "watch!=unsupported|broken|forbidden woken=yes fault!=0 handed=yes", "try", "woken=no"},
	{"signal", "watch=unsupported woken=no", "anew", "watch=polls"},
	{"signal", "watch=unsupported woken=yes fault=0", "try anew", "woken=no watch=polls"},
	{"signal", "watch=unsupported woken=yes fault!=0 handed=no", "anew", "woken=no watch=polls"},
	{"signal", "watch=unsupported woken=yes fault!=0 handed=yes", "try anew", "woken=no watch=polls"},
	{"signal", "watch=broken", "err", "watch=refused"},
	{"signal", "watch=forbidden", "err", "watch=refusedForAll"},

	{"signal, outlasts", "watch!=unsupported|broken|forbidden woken=no", "", ""},
	{"signal, outlasts", "watch!=unsupported|broken|forbidden woken=yes fault=0", "try", "woken=no"},
	{"signal, outlasts", "watch!=unsupported|broken|forbidden woken=yes fault!=0 handed=no", "", "woken=no"},
	{"signal, outlasts", "watch!=unsupported|broken|forbidden woken=yes fault!=0 handed=yes", "try", "woken=no"},
	{"signal, outlasts", "watch=unsupported woken=no", "anew", "watch=polls"},
	{"signal, outlasts", "watch=unsupported woken=yes fault=0", "try anew", "woken=no watch=polls"},
	{"signal, outlasts", "watch=unsupported woken=yes fault!=0 handed=no", "anew", "woken=no watch=polls"},
	{"signal, outlasts", "watch=unsupported woken=yes fault!=0 handed=yes", "try anew", "woken=no watch=polls"},
	{"signal, outlasts", "watch=broken woken=no", "endWatch anew", "watch=none"},
	{"signal, outlasts", "watch=broken woken=yes fault=0", "endWatch try anew", "woken=no watch=none"},
	{"signal, outlasts", "watch=broken woken=yes fault!=0 handed=no", "endWatch anew", "woken=no watch=none"},
	{"signal, outlasts", "watch=broken woken=yes fault!=0 handed=yes", "endWatch try anew", "woken=no watch=none"},
	{"signal, outlasts", "watch=forbidden", "err", "watch=refusedForAll"},

	{"offer", "head!=asleep|invited", "", ""},
	{"offer", "head=asleep|invited handed=yes", "", ""},
	{"offer", "head=asleep|invited handed=no", "signal", "handed=yes* woken=yes"},
	{"offer of half of the TTL", "", "", ""},
	{"offer of more than the TTL", "", "", ""},

	{"lingered", "head!=absent", "", ""},
	{"lingered", "head=absent watch=none", "remove", ""},
	{"lingered", "head=absent watch!=none", "endWatch remove", "watch=none"},
}

// Facts of a state, and of an event.
var (
	before, now               = time.Unix(1000, 0), time.Unix(2000, 0)
	end, nextEnd              = time.Unix(3000, 0), time.Unix(4000, 0)
	ttl, nextTTL              = 10 * time.Second, 20 * time.Second
	earlierLease, newLease    = &grant{}, leaseFor(ttl/2 + 1)
	others, queued, answer    = &HeldError{}, &HeldError{Position: 3}, &HeldError{}
	errDown, errDownAgain     = errors.New("down"), errors.New("down again")
	errBroken, errBrokenAgain = errors.New("broken"), errors.New("broken again")
	errForbidden              = outcome.Invalidf("forbidden")
)

func leaseFor(d time.Duration) *grant {
	g := &grant{}
	g.Expires = now.Add(d)
	return g
}

// steps are all events, by their names in rows.
var steps = map[string]lineEvent{
	"enter":                                {is: onEnter, ttl: nextTTL},
	"sleep":                                {is: onSleep},
	"sleep, outlasts":                      {is: onSleep, outlasts: true},
	"attempt":                              {is: onAttempt, slept: true},
	"attempt, while the key rests":         {is: onAttempt, slept: true, rests: true},
	"first attempt":                        {is: onAttempt},
	"first attempt, outlasts":              {is: onAttempt, outlasts: true},
	"held":                                 {is: onHeld, held: answer, until: nextEnd},
	"failure":                              {is: onFailure, err: errDownAgain, at: now},
	"unknown":                              {is: onUnknown},
	"grant, none behind":                   {is: onGrant, until: nextEnd},
	"grant, three behind":                  {is: onGrant, until: nextEnd, behind: 3, next: nextTTL},
	"grant with others, room for none":     {is: onGrant, until: nextEnd, behind: 3, next: nextTTL, shared: true},
	"grant with room for one":              {is: onGrant, until: nextEnd, behind: 3, next: nextTTL, shared: true, room: 1},
	"grant with room for three":            {is: onGrant, until: nextEnd, behind: 1, next: nextTTL, shared: true, room: 3},
	"grant with room for all":              {is: onGrant, until: nextEnd, behind: 3, next: nextTTL, shared: true, room: -1},
	"grant with room for all, none behind": {is: onGrant, until: nextEnd, shared: true, room: -1},
	"leave, none behind":                   {is: onLeave},
	"leave, one behind":                    {is: onLeave, behind: 1, next: nextTTL},
	"wake":                                 {is: onWake},
	"freed":                                {is: onFreed},
	"watched":                              {is: onWatched},
	"watch failed":                         {is: onWatchFailed, err: errBrokenAgain},
	"signal":                               {is: onSignal},
	"signal, outlasts":                     {is: onSignal, outlasts: true},
	"offer":                                {is: onOffer, lease: newLease, at: now},
	"offer of half of the TTL":             {is: onOffer, lease: leaseFor(ttl / 2), at: now},
	"offer of more than the TTL":           {is: onOffer, lease: leaseFor(ttl + 1), at: now},
	"lingered":                             {is: onLingered},
}

var (
	heads   = map[head]string{absent: "absent", asleep: "asleep", invited: "invited", asking: "asking", following: "following"}
	watches = map[watchIs]string{
		{unwatched, nil}: "none", {watchBegun, nil}: "begun", {watchActive, nil}: "active", {unwatchable, nil}: "polls",
		{watchFailed, errors.ErrUnsupported}: "unsupported", {watchFailed, errBroken}: "broken", {watchFailed, errForbidden}: "forbidden",
		{watchRefused, errBroken}: "refused", {watchRefused, errForbidden}: "refusedForAll", {watchFailed, errBrokenAgain}: "failed*",
	}
	locks = map[lockIs]string{
		{nil, time.Time{}, false}: "unknown", {others, end, false}: "others", {queued, end, false}: "queued",
		{heldHere, end, true}: "ours", {heldHere, end, false}: "ended",
		{answer, nextEnd, false}: "held*", {heldHere, nextEnd, true}: "ours*",
	}
)

type watchIs struct {
	watch watch
	err   error
}

type lockIs struct {
	held  *HeldError
	until time.Time
	local bool
}

// parts names the parts of a state. A state that it can't name has a question mark.
func parts(s lineState) map[string]string {
	p := map[string]string{
		"head": heads[s.head], "watch": watches[watchIs{s.watch, s.watchErr}], "lock": locks[lockIs{s.held, s.until, s.local}],
		"woken":  map[bool]string{false: "no", true: "yes"}[s.woken],
		"handed": map[*grant]string{nil: "no", earlierLease: "yes", newLease: "yes*"}[s.handed],
		"ttl":    map[time.Duration]string{ttl: "", nextTTL: "*"}[s.ttl],
	}
	switch {
	case s.fault == nil && s.failures == 0:
		p["fault"] = "0"
	case s.failures > 0 && s.fault == errDown && s.failedAt.Equal(before):
		p["fault"] = strconv.Itoa(s.failures)
	case s.failures > 0 && s.fault == errDownAgain && s.failedAt.Equal(now):
		p["fault"] = strconv.Itoa(s.failures) + "*"
	}
	for name, part := range p {
		if part == "" && name != "ttl" {
			p[name] = "?"
		}
	}
	return p
}

// states are all states but for those that only a fact of an event makes.
func states() iter.Seq[lineState] {
	return func(yield func(lineState) bool) {
		for h := range heads {
			for w, watched := range watches {
				for l, lock := range locks {
					if strings.HasSuffix(watched+lock, "*") || strings.HasSuffix(watched, "*") {
						continue
					}
					for i := range 8 {
						s := lineState{head: h, ttl: ttl, held: l.held, until: l.until, local: l.local, watch: w.watch, watchErr: w.err, woken: i&1 > 0}
						if i&2 > 0 {
							s.handed = earlierLease
						}
						if i&4 > 0 {
							s.fault, s.failures, s.failedAt = errDown, 3, before
						}
						if !yield(s) {
							return
						}
					}
				}
			}
		}
	}
}

// matches tells whether the parts are as the condition says.
func matches(t *testing.T, p map[string]string, condition string) bool {
	t.Helper()
	for _, c := range strings.Fields(condition) {
		name, value, found := strings.Cut(c, "=")
		name, not := strings.CutSuffix(name, "!")
		if _, is := p[name]; !is || !found {
			t.Fatalf("%q is no condition", c)
		}
		if slices.Contains(strings.Split(value, "|"), p[name]) == not {
			return false
		}
	}
	return true
}

// set lists the fields of an action that are set, in their order.
func set(a lineAction) string {
	var fields []string
	for f, v := range reflect.ValueOf(a).Fields() {
		switch {
		case v.IsZero():
		case v.Kind() == reflect.Int:
			fields = append(fields, fmt.Sprintf("%s=%d", f.Name, v.Int()))
		default:
			fields = append(fields, f.Name)
		}
	}
	return strings.Join(fields, " ")
}

func TestALineKnowsWhatTheStoreAnsweredLast(t *testing.T) {
	limit := end.Add(-time.Second)
	for _, c := range []struct {
		state lineState
		at    time.Time
		want  *HeldError
	}{
		{lineState{}, limit, nil},
		{lineState{held: heldHere}, limit, &HeldError{Key: "key", Position: 1}},
		{lineState{held: heldHere, until: end, local: true}, limit, &HeldError{Key: "key", Position: 1, Left: time.Second}},
		{lineState{held: &HeldError{Key: "other", Position: 3}, until: end}, nextEnd, &HeldError{Key: "other", Position: 3}},
	} {
		if is := c.state.holder("key", c.at); !reflect.DeepEqual(is, c.want) {
			t.Errorf("%+v: the holder is %+v; want %+v", c.state, is, c.want)
		}
	}
	if *heldHere != (HeldError{}) {
		t.Error("what is known of one key was written into what is known of all")
	}
	for w, name := range watches {
		s := lineState{watch: w.watch, watchErr: w.err}
		if polls := name == "none" || name == "polls"; s.polls() != polls {
			t.Errorf("watch %s: the head polls is %v", name, s.polls())
		}
	}
}

// Each state with each event is in exactly one row: a pair without a row fails, as does a row without a
// pair.
func TestALineDoesForEachEventInEachStateWhatItsTableSays(t *testing.T) {
	used := make([]int, len(rows))
	happened := map[happening]bool{}
	pairs := 0
	for name, e := range steps {
		happened[e.is] = true
		for s := range states() {
			pairs++
			was, in := parts(s), -1
			for i, r := range rows {
				if r.event != name || !matches(t, was, r.in) {
					continue
				}
				if in >= 0 {
					t.Fatalf("%s in state %v is in two rows: %v and %v", name, was, rows[in], r)
				}
				in = i
			}
			if in < 0 {
				t.Fatalf("%s in state %v is in no row", name, was)
			}
			used[in]++
			next := s
			a := next.step(&e)
			if does := set(a); does != rows[in].does {
				t.Fatalf("%s in state %v: the line does %q; want %q", name, was, does, rows[in].does)
			}
			if a.lease != nil && a.lease != s.handed || a.err != nil && a.err != s.watchErr {
				t.Fatalf("%s in state %v: the lease or the error is another one: %+v", name, was, a)
			}
			for _, change := range strings.Fields(rows[in].becomes) {
				part, value, _ := strings.Cut(change, "=")
				was[part] = value
			}
			if is := parts(next); !reflect.DeepEqual(is, was) {
				t.Fatalf("%s: the state is %v; want %v", name, is, was)
			}
		}
	}
	for i, r := range rows {
		if used[i] == 0 {
			t.Errorf("no pair of an event and a state is in %v", r)
		}
	}
	for h := range happenings {
		if !happened[h] {
			t.Errorf("happening %d is in no event of the table", h)
		}
	}
	t.Logf("%d rows for %d pairs", len(rows), pairs)
}
