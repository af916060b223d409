package pagelocker

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// metrics is the text format of Prometheus, 0.0.4. Its labels are bounded: states, reasons, and the
// keys of WithKeyMetrics.
func (p *Page) metrics(now time.Time) []byte {
	var b bytes.Buffer
	family := func(name, kind, help string) { fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind) }
	gauge := func(name, help string, value float64) {
		family(name, "gauge", help)
		fmt.Fprintf(&b, "%s %g\n", name, value)
	}
	one := func(yes bool) float64 {
		if yes {
			return 1
		}
		return 0
	}
	k := p.recent(query{})
	source := k.source
	up := source == nil || source.Error == "" && !source.Read.IsZero()
	if source != nil {
		gauge("lockstep_store_up", "1 if the store answered when it was last asked.", one(up))
		if up {
			gauge("lockstep_store_list_seconds", "How long it took to list the locks of the store.", source.Listed.Seconds())
			gauge("lockstep_rtt_seconds", "Round trip to the store: a look at a key that nobody uses.", source.RoundTrip.Seconds())
			gauge("lockstep_store_partial", "1 if the store has more keys than are counted here.", one(source.Partial))
		}
		findings(&b, family, source.Health)
	}
	if up { // otherwise nothing is known now, and 0 would say that nothing is held
		p.locks(&b, family, gauge, k, now)
	}
	p.process(&b, family)
	if up && len(p.watched) > 0 {
		p.perKey(&b, family, k, now)
	}
	return b.Bytes()
}

// locks counts what the store has, and this process.
func (p *Page) locks(b *bytes.Buffer, family func(name, kind, help string), gauge func(name, help string, value float64), k known, now time.Time) {
	states, waiters, longest, oldest, begin := map[string]int{}, 0, 0, now, now
	others := false
	for _, l := range k.all {
		states[l.State]++
		others = others || l.Others
		waiters += l.Waiting
		longest = max(longest, l.Waiting)
		if since := l.age(); !since.IsZero() && since.Before(oldest) {
			oldest = since
		}
		if t := l.begin(); !t.IsZero() && t.Before(begin) {
			begin = t
		}
	}
	family("lockstep_locks", "gauge", "Keys by their state: those of the store, and those of this process.")
	for _, state := range []string{"held", "reserved", "foreign"} {
		fmt.Fprintf(b, "lockstep_locks{state=%q} %d\n", state, states[state])
	}
	if !others { // else the store can't tell them, and 0 would say that nobody waits
		gauge("lockstep_waiters", "Calls of this process that wait, and waiters of others in queues of the store.", float64(waiters))
		gauge("lockstep_longest_queue", "Waiters of the key that has most of them.", float64(longest))
	}
	gauge("lockstep_oldest_hold_seconds", "Least age of the oldest hold: for so long it was followed; 0: none.", now.Sub(oldest).Seconds())
	gauge("lockstep_oldest_hold_at_most_seconds", "Greatest age of the oldest hold, as far as a store numbers grants by its clock; 0: none.", now.Sub(begin).Seconds())
}

// findings counts what the check of the store has found.
func findings(b *bytes.Buffer, family func(name, kind, help string), h *Health) {
	if h == nil || h.Checked.IsZero() || h.Error != "" {
		return
	}
	family("lockstep_finding", "gauge", "What the check of the store has found, by its kind.")
	found := map[string]int{}
	for _, f := range h.Findings {
		found[fmt.Sprintf(`problem="%s",unsafe="%v"`, escaped.Replace(f.Problem), f.Unsafe)]++
	}
	for _, labels := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintf(b, "lockstep_finding{%s} %d\n", labels, found[labels])
	}
}

// process counts what the middleware has seen.
func (p *Page) process(b *bytes.Buffer, family func(name, kind, help string)) {
	r := &p.registry
	r.mu.Lock()
	held, waiting, acquired, lost := r.held, r.waiting, r.acquired, maps.Clone(r.lost)
	r.mu.Unlock()
	family("lockstep_process_holds", "gauge", "Holds of this process.")
	fmt.Fprintf(b, "lockstep_process_holds %d\n", held)
	family("lockstep_process_waits", "gauge", "Calls of this process for a lock that have not returned.")
	fmt.Fprintf(b, "lockstep_process_waits %d\n", waiting)
	family("lockstep_process_acquired_total", "counter", "Holds that this process was granted.")
	fmt.Fprintf(b, "lockstep_process_acquired_total %d\n", acquired)
	family("lockstep_process_lost_total", "counter", "Holds of this process that were lost, by locker.LostReason.")
	for _, reason := range slices.Sorted(maps.Keys(lost)) {
		fmt.Fprintf(b, "lockstep_process_lost_total{reason=%q} %d\n", reason, lost[reason])
	}
}

func (p *Page) perKey(b *bytes.Buffer, family func(name, kind, help string), k known, now time.Time) {
	locks := map[string]*Lock{}
	for _, l := range k.all {
		if slices.Contains(p.watched, l.Key) {
			locks[l.Key] = l
		}
	}
	for _, m := range []struct {
		name, help string
		value      func(l *Lock) float64
	}{
		{"lockstep_key_holds", "Holds of the key.", func(l *Lock) float64 { return float64(l.Holding) }},
		{"lockstep_key_waiters", "Waiters of the key.", func(l *Lock) float64 { return float64(l.Waiting) }},
		{"lockstep_key_oldest_hold_seconds", "Age of its oldest hold; 0: none.", func(l *Lock) float64 {
			if since := l.age(); !since.IsZero() {
				return now.Sub(since).Seconds()
			}
			return 0
		}},
	} {
		family(m.name, "gauge", m.help)
		for _, key := range p.watched {
			l := locks[key]
			switch {
			case l == nil && p.tells(key, k.whole):
				l = new(Lock)
			case l == nil || l.State == "unknown", l.Others && m.name == "lockstep_key_waiters":
				continue
			}
			fmt.Fprintf(b, "%s{key=\"%s\"} %g\n", m.name, escaped.Replace(key), m.value(l))
		}
	}
}

var escaped = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
