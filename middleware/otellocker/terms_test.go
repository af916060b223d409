package otellocker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/election"
	"github.com/lockstep-go/lockstep/middleware/otellocker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// lead runs an election until one of the leads returns an error or stops it.
func (x *scene) lead(leads ...func(ctx context.Context, stop func()) error) {
	x.Helper()
	ctx, cancel := context.WithCancel(x.ctx)
	defer cancel()
	e := election.New(x.client, key).OnTerm(x.terms)
	x.leading(0)
	_ = e.Run(ctx, func(ctx context.Context, _ election.Term) error {
		x.leading(1)
		lead := leads[0]
		leads = leads[1:]
		return lead(ctx, cancel)
	})
	x.leading(0)
}

// leading checks the value of lock.leading at this moment.
func (x *scene) leading(want int64) {
	x.Helper()
	if n := x.level("lock.leading"); !x.blind && n != want {
		x.Errorf("lock.leading is %d; want %d", n, want)
	}
}

// termScenarios are the ways in which a term ends.
var termScenarios = []scenario{
	{
		name:  "leader that resigns, and one that is stopped",
		setup: setup{elects: true},
		run: func(x *scene) {
			x.lead(
				func(context.Context, func()) error { time.Sleep(2 * time.Second); return nil },
				func(_ context.Context, stop func()) error {
					time.Sleep(3 * time.Second)
					stop()
					synctest.Wait()
					x.leading(0) // though it is not done yet
					x.now(0, 1)
					time.Sleep(4 * time.Second)
					return nil
				})
		},
		spans: []string{
			`2 × ` + acquired,
			`lock hold 2s under caller {lock.key="invoice/42"} -> lock acquire`,
			`lock hold 7s under caller {lock.key="invoice/42"} -> lock acquire`,
			`2 × ` + released,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=acquired}": "2×0s",
			"lock.acquire.attempts":                        "2×1",
			"lock.waiting":                                 "0",
			"lock.held":                                    "0",
			"lock.hold.duration":                           "2s 7s",
			"lock.leading":                                 "0",
			"lock.terms":                                   "2",
			"lock.term.duration{lock.term.end=resigned}":   "2s",
			"lock.term.duration{lock.term.end=stopped}":    "3s",
		},
	},
	{
		name:  "leader that loses its lock, and ends with an error",
		setup: setup{elects: true},
		run: func(x *scene) {
			x.lead(
				func(ctx context.Context, _ func()) error {
					x.store().Delete(key)
					<-ctx.Done()
					synctest.Wait()
					x.leading(0)
					return nil
				},
				func(context.Context, func()) error { time.Sleep(time.Second); return errors.New("no such invoice") })
		},
		spans: []string{
			`2 × ` + acquired,
			`lock renew 0s root {error.type="lost" lock.key="invoice/42" lock.lost.reason="stolen" lock.outcome="lost" lock.ttl=30.0}` +
				stolen + ` -> lock acquire`,
			`lock hold 9.6s under caller {error.type="lost" lock.key="invoice/42" lock.lost.reason="stolen"}` + stolen + ` -> lock acquire`,
			releasedNothing,
			`lock hold 1s under caller {lock.key="invoice/42"} -> lock acquire`,
			released,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=acquired}": "2×0s",
			"lock.acquire.attempts":                        "2×1",
			"lock.waiting":                                 "0",
			"lock.held":                                    "0",
			"lock.hold.duration":                           "9.6s 1s",
			"lock.renewals{lock.outcome=lost}":             "1",
			"lock.losses{lock.lost.reason=stolen}":         "1",
			"lock.leading":                                 "0",
			"lock.terms":                                   "2",
			"lock.term.duration{lock.term.end=stolen}":     "9.6s",
			"lock.term.duration{lock.term.end=failed}":     "1s",
		},
	},
}

func TestACandidateThatHasNeverLedShowsAZero(t *testing.T) {
	s := newSDK()
	otellocker.Terms(s.options()...)
	if n := len(points(s.collect())); n != 1 {
		t.Errorf("%d series; want lock.leading", n)
	}
}

// The end of a term is reported later than it was, at times; or it was before the begin, for a
// process that was suspended.
func TestATermLastsFromItsBeginToItsEnd(t *testing.T) {
	for at, want := range map[time.Duration]float64{-time.Minute: 0, -2 * time.Second: 3} {
		synctest.Test(t, func(t *testing.T) {
			s := newSDK()
			end := otellocker.Terms(s.options()...)(t.Context(), election.Term{Key: key})
			time.Sleep(5 * time.Second)
			end(election.End{At: time.Now().Add(at), Reason: election.Stopped})
			for _, m := range s.collect().Metrics {
				if data, ok := m.Data.(metricdata.Histogram[float64]); ok && (m.Name != "lock.term.duration" || data.DataPoints[0].Sum != want) {
					t.Errorf("%s is %v s; want %v s", m.Name, data.DataPoints[0].Sum, want)
				}
			}
		})
	}
}

// Elections may share a hook, or have hooks that differ in an attribute.
func TestElectionsOfOneProcessAddUp(t *testing.T) {
	s := newSDK()
	store := memory.New()
	billing, mail := attribute.String("election", "billing"), attribute.String("election", "mail")
	shared := otellocker.Terms(s.options(otellocker.WithAttributes(mail))...)
	ctx, cancel := context.WithCancel(t.Context())
	leading, over := make(chan bool), make(chan bool)
	for key, hook := range map[string]func(context.Context, election.Term) func(election.End){
		"a": shared, "b": shared, "c": otellocker.Terms(s.options(otellocker.WithAttributes(billing))...),
	} {
		e := election.New(locker.New(single.New(store)), key).OnTerm(hook)
		go func() {
			_ = e.Run(ctx, func(ctx context.Context, _ election.Term) error {
				leading <- true
				<-ctx.Done()
				return nil
			})
			over <- true
		}()
	}
	for range 3 {
		<-leading
	}
	lead := map[string]int64{}
	for _, m := range s.collect().Metrics {
		if data, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "lock.leading" {
			for _, p := range data.DataPoints {
				which, _ := p.Attributes.Value("election")
				lead[which.AsString()] = p.Value
			}
		}
	}
	if lead["mail"] != 2 || lead["billing"] != 1 || len(lead) != 2 {
		t.Errorf("lock.leading is %v", lead)
	}
	cancel()
	for range 3 {
		<-over
	}
	if n := s.level("lock.leading"); n != 0 {
		t.Errorf("lock.leading is %d when all have ended", n)
	}
}
