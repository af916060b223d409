package otellocker_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockstep-go/lockstep/middleware/otellocker"
	"github.com/lockstep-go/lockstep/proof/full"
)

// scenario is a sequence of events with all spans and metrics that it makes.
type scenario struct {
	name    string
	setup   setup
	run     func(x *scene)
	spans   []string // see sdk.lines
	metrics samples
}

// scenarios are all scenarios. Checks that hold for every outcome run with each.
var scenarios = slices.Concat(acquireScenarios, holdScenarios, minimumHoldScenarios, renewalScenarios, lossScenarios, releaseScenarios, quorumScenarios, sharedScenarios, heldScenarios, ticketScenarios, termScenarios)

func TestSpansAndMetricsOfEveryScenario(t *testing.T) { playAll(t, scenarios) }

func playAll(t *testing.T, scenarios []scenario) {
	repeat := 1
	if full.Size() {
		repeat = 200
	}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			for range repeat {
				play(t, s.setup, s.run, func(x *scene) {
					x.wantSpans(t, s.spans...)
					x.wantMetrics(t, s.metrics)
				})
			}
		})
	}
}

func TestGivenAttributesAreOnEverySpanAndEveryMetric(t *testing.T) {
	given := []attribute.KeyValue{
		attribute.String("lock.strategy", "single"), attribute.String("lock.backend", "memory"), attribute.Int("shard", 7),
	}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			s.setup.watched = append(slices.Clip(s.setup.watched), otellocker.WithNames("single", "memory"), otellocker.WithAttributes(given[2]))
			play(t, s.setup, s.run, func(x *scene) {
				if len(x.spans()) == 0 {
					t.Error("no spans")
				}
				for _, span := range x.spans() {
					for _, a := range given {
						if !slices.Contains(span.Attributes, a) {
							t.Errorf("%s is not on %s", a.Key, line(span, nil))
						}
					}
				}
				x.wantMetrics(t, s.metrics, given...)
			})
		})
	}
}

func TestARedactedKeyIsInNoSpanOrMetric(t *testing.T) {
	group := func(key string) string { before, _, _ := strings.Cut(key, "/"); return before }
	for _, s := range slices.Concat(scenarios, placementScenarios) {
		t.Run(s.name, func(t *testing.T) {
			play(t, s.setup, s.run, func(x *scene) {
				if !strings.Contains(x.everything(), key) {
					t.Fatal("the key is not shown without WithKeyAttribute either: the test looks at the wrong thing")
				}
			})
			s.setup.watched = append(slices.Clip(s.setup.watched), otellocker.WithKeyAttribute(group))
			play(t, s.setup, s.run, func(x *scene) {
				if text := x.everything(); strings.Contains(text, key) {
					t.Errorf("the key was emitted:\n%s", text)
				}
				for _, span := range x.spans() {
					if shown := regexp.MustCompile(`lock.key="(outer )?invoice"`); !shown.MatchString(line(span, nil)) {
						t.Errorf("no redacted key on %s", line(span, nil))
					}
				}
			})
		})
	}
}

func TestSpansNeedNoMetrics(t *testing.T) {
	for _, s := range slices.Concat(scenarios, placementScenarios) {
		t.Run(s.name, func(t *testing.T) {
			s.setup.watched = append(slices.Clip(s.setup.watched), otellocker.WithMeterProvider(metricnoop.NewMeterProvider()))
			s.setup.noMetrics = true
			play(t, s.setup, s.run, func(x *scene) { x.wantSpans(t, s.spans...) })
		})
	}
}

func TestMetricsNeedNoSpans(t *testing.T) {
	for name, tracers := range map[string]trace.TracerProvider{
		"no provider": tracenoop.NewTracerProvider(),
		"not sampled": sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())),
	} {
		for _, s := range slices.Concat(scenarios, placementScenarios) {
			t.Run(name+", "+s.name, func(t *testing.T) {
				s.setup.watched = append(slices.Clip(s.setup.watched), otellocker.WithTracerProvider(tracers))
				play(t, s.setup, s.run, func(x *scene) {
					x.wantSpans(t)
					x.wantMetrics(t, s.metrics)
				})
			})
		}
	}
}

// Every scene ends with this check.
func TestTheCheckForTokensCanFail(t *testing.T) {
	play(t, setup{}, func(x *scene) {
		x.unlock(x.lock())
		if len(x.tokens.all) != 1 {
			t.Fatalf("%d tokens for one Lock", len(x.tokens.all))
		}
		for token := range x.tokens.all {
			_, span := x.tracers.Tracer(otellocker.ScopeName).Start(context.Background(), "careless")
			span.SetAttributes(attribute.String("lock.key", "token:"+token))
			span.End()
			if x.tokens.in(x.everything()) != token {
				t.Error("a token in an attribute is not found")
			}
		}
		x.exported.Reset()
	})
}
