package pagelocker

import (
	"cmp"
	"context"
	"slices"
	"time"
)

const checkInterval = time.Minute

// Health is what the check of the store has found.
type Health struct {
	Checked   time.Time     `json:"checked,omitzero"` // when the check began; zero: it has not answered yet
	Error     string        `json:"error,omitempty"`  // of the last check
	Server    string        `json:"server,omitempty"`
	ClockSkew time.Duration `json:"clock_skew_ns,omitempty"`
	Findings  []Finding     `json:"findings"` // the unsafe ones first
}

// Finding is a [backends.Finding], for people.
type Finding struct {
	Problem string `json:"problem"`
	Unsafe  bool   `json:"unsafe"` // two holders at once are possible in ordinary operation
	Found   string `json:"found"`
	Meaning string `json:"meaning"`
	Remedy  string `json:"remedy,omitempty"`
}

// Unsafe are the findings that are.
func (h *Health) Unsafe() []Finding {
	return slices.DeleteFunc(slices.Clone(h.Findings), func(f Finding) bool { return !f.Unsafe })
}

// checked runs the check, unless that was done less than a minute ago.
func (p *Page) checked() <-chan struct{} {
	if p.check == nil {
		return answered()
	}
	forget := func() { p.polls.health = Health{} }
	return p.start(&p.polls.check, checkInterval, forget, func(ctx context.Context, began time.Time) error {
		c, err := p.check(ctx)
		p.polls.mu.Lock()
		defer p.polls.mu.Unlock()
		if err != nil {
			p.polls.health.Error = err.Error()
			return err
		}
		h := Health{Checked: began, Server: c.Server, ClockSkew: c.ClockSkew, Findings: []Finding{}}
		for _, f := range c.Findings {
			remedy := ""
			if c.Remedy != nil {
				remedy = c.Remedy(f)
			}
			h.Findings = append(h.Findings, Finding{string(f.Problem), f.Unsafe, f.Detail, f.Consequence, remedy})
		}
		slices.SortStableFunc(h.Findings, func(a, b Finding) int { return -cmp.Compare(rank(a), rank(b)) })
		p.polls.health = h
		return nil
	})
}

func rank(f Finding) int {
	if f.Unsafe {
		return 1
	}
	return 0
}

// probe measures a round trip, by a look at a key that nobody uses.
func (p *Page) probe(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	_, err := p.store.Inspect(ctx, p.prefixes[0]+"lockstep-page")
	return time.Since(began), err
}
