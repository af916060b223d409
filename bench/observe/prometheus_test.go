package observe

import (
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/lockstep-go/lockstep/middleware/otellocker"
)

// TestExpressionsFindWhatTheyAreFor runs each expression of the page on what Prometheus would have scraped from locks in trouble.
func TestExpressionsFindWhatTheyAreFor(t *testing.T) {
	after := ailing.scraped(t)
	for _, block := range blocks(t, "promql") {
		for expression := range strings.Lines(block) {
			level := strings.HasPrefix(expression, "sum(lock_") // which is zero again by then
			seen := level && len(after.query(t, expression)) > 0
			for _, sample := range after.query(t, expression) {
				seen = seen || sample.F > 0
				if math.IsNaN(sample.F) {
					t.Errorf("%s finds %v", expression, sample)
				}
			}
			if !seen {
				t.Errorf("nothing found by %s", expression)
			}
		}
	}
}

// TestAlertsFireInTroubleAndNotWithout holds the rules of docs/alerts.yaml against both.
func TestAlertsFireInTroubleAndNotWithout(t *testing.T) {
	well, ill, ill1 := healthy.scraped(t), ailing.scraped(t), once.scraped(t)
	rules := 0
	file, err := os.ReadFile("../../docs/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(file, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			rules++
			if found := ill.query(t, rule.Expr); len(found) == 0 {
				t.Errorf("%s does not fire", rule.Alert)
			}
			if found := well.query(t, rule.Expr); len(found) > 0 {
				t.Errorf("%s fires without trouble: %v", rule.Alert, found)
			}
			if found := ill1.query(t, rule.Expr); rule.Alert == "LockLost" && len(found) == 0 {
				t.Errorf("%s does not fire at the first loss", rule.Alert)
			}
		}
	}
	if rules == 0 {
		t.Error("no rules")
	}
}

// scrapes are the series of a server that was scraped each minute.
type scrapes []storage.Series

// A history is what is played before each scrape.
type history []func(scene)

// The histories. In trouble that is new there are series that have not been there before.
var (
	healthy = history{quiet, quiet, quiet, quiet, quiet, quiet}
	ailing  = history{quiet, quiet, quiet, trouble, trouble, trouble}
	once    = history{quiet, quiet, quiet, trouble, quiet, quiet}
)

func (h history) scraped(t *testing.T) scrapes {
	t.Helper()
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	meters := otellocker.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	observed, leader := otellocker.New(meters), &leader{hook: otellocker.Terms(meters)}
	series := make(map[string][]chunks.Sample)
	for minute, act := range h {
		play(t, observed, leader, act)
		for name, value := range scrape(t, registry) {
			series[name] = append(series[name], sample{at: (time.Duration(minute) * time.Minute).Milliseconds(), value: value})
		}
	}
	var all scrapes
	for name, samples := range series {
		all = append(all, storage.NewListSeries(parse(t, name), samples))
	}
	return all
}

// scrape gives the value of each series by its name and labels, written as in an expression.
func scrape(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			put := func(suffix string, value float64, more ...string) {
				l := labels.NewBuilder(labels.FromStrings(append(more, model.MetricNameLabel, family.GetName()+suffix)...))
				for _, pair := range m.GetLabel() {
					l.Set(pair.GetName(), pair.GetValue())
				}
				values[l.Labels().String()] = value
			}
			switch h := m.GetHistogram(); {
			case h != nil:
				put("_sum", h.GetSampleSum())
				put("_count", float64(h.GetSampleCount()))
				for _, b := range buckets(h) {
					put("_bucket", float64(b.GetCumulativeCount()), "le", model.SampleValue(b.GetUpperBound()).String())
				}
			case m.GetCounter() != nil:
				put("", m.GetCounter().GetValue())
			default:
				put("", m.GetGauge().GetValue())
			}
		}
	}
	return values
}

// buckets are those of h with the last, which has no bound and is not written out.
func buckets(h *dto.Histogram) []*dto.Bucket {
	count, infinity := h.GetSampleCount(), math.Inf(1)
	return append(slices.Clip(h.GetBucket()), &dto.Bucket{CumulativeCount: &count, UpperBound: &infinity})
}

func parse(t *testing.T, name string) labels.Labels {
	t.Helper()
	l, err := parser.NewParser(parser.Options{}).ParseMetric(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// query evaluates expression at the last scrape.
func (s scrapes) query(t *testing.T, expression string) promql.Vector {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	q, err := engine.NewInstantQuery(t.Context(), s, nil, expression, time.UnixMilli(0).Add(time.Duration(len(healthy)-1)*time.Minute))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	defer q.Close()
	found, err := q.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return slices.Clone(found)
}

// Querier makes scrapes a store of Prometheus.
func (s scrapes) Querier(_, _ int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		var found []storage.Series
		for _, series := range s {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(series.Labels().Get(m.Name)) }) {
				found = append(found, series)
			}
		}
		return &seriesSet{series: found}
	}}, nil
}

type seriesSet struct {
	series []storage.Series
	next   int
}

func (s *seriesSet) Next() bool                      { s.next++; return s.next <= len(s.series) }
func (s *seriesSet) At() storage.Series              { return s.series[s.next-1] }
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }

// sample is one value at a time in milliseconds.
type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                    { return s.at }
func (sample) ST() int64                     { return 0 }
func (s sample) F() float64                  { return s.value }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample         { return s }
