package otellocker_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// TestTheTablesOfThePageListAllSpansAndMetrics compares the tables of docs/observability.md, and the bounds in the
// comment of the package, with the spans and metrics of all scenarios.
func TestTheTablesOfThePageListAllSpansAndMetrics(t *testing.T) {
	page, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	spans, metrics, words := map[string]map[string]bool{}, map[string]*described{}, map[string]map[string]bool{}
	for _, s := range scenarios {
		play(t, s.setup, s.run, func(x *scene) {
			for _, span := range x.spans() {
				addNames(spans, span.Name, span.Attributes)
				note(words, span.Name == "lock acquire", span.Attributes)
			}
			for _, m := range x.collect().Metrics {
				learn(metrics, m)
			}
		})
	}
	var emitted []string
	for name, attributes := range spans {
		emitted = append(emitted, fmt.Sprintf("`%s` | %s", name, quoted(attributes)))
	}
	compare(t, "spans", emitted, table(page, "span", 0, 2))

	emitted = nil
	for name, i := range metrics {
		emitted = append(emitted, fmt.Sprintf("`%s` | %s | `%s` | %s", name, i.kind, i.unit, quoted(i.attributes)))
	}
	compare(t, "metrics", emitted, table(page, "metric", 0, 1, 2, 3))

	emitted = nil
	for name, i := range metrics {
		if i.bounds != "" {
			emitted = append(emitted, name+" "+i.bounds)
		}
	}
	compare(t, "bounds", emitted, bounds(t))

	emitted = nil
	for word := range words["lock.outcome"] {
		emitted = append(emitted, "`"+word+"`")
	}
	compare(t, "outcomes", emitted, table(page, "`lock.outcome`", 0))
	for word := range words["lock.lost.reason"] {
		if !strings.Contains(string(page), "`"+word+"`") {
			t.Errorf("the reason %s is not on the page", word)
		}
	}
}

// table returns these columns of the table whose header begins with first.
func table(page []byte, first string, columns ...int) (rows []string) {
	block := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(first) + ` \|.*\n\|[-|]*\|\n((?:\|.*\n)*)`).FindSubmatch(page)
	if block == nil {
		return nil
	}
	for line := range strings.Lines(string(block[1])) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		var row []string
		for _, c := range columns {
			row = append(row, strings.TrimSpace(cells[c]))
		}
		rows = append(rows, strings.Join(row, " | "))
	}
	return rows
}

// bounds are the lines of the histograms in the comment of the package.
func bounds(t *testing.T) (lines []string) {
	t.Helper()
	source, err := os.ReadFile("otellocker.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`(?m)^//\t(lock\.[a-z.]+) +([\d. ]+)$`).FindAllSubmatch(source, -1) {
		lines = append(lines, string(line[1])+" "+string(line[2]))
	}
	return lines
}

func compare(t *testing.T, what string, emitted, page []string) {
	t.Helper()
	slices.Sort(emitted)
	slices.Sort(page)
	for _, e := range emitted {
		if !slices.Contains(page, e) {
			t.Errorf("%s: emitted, but not documented:\n\t%s", what, e)
		}
	}
	for _, p := range page {
		if !slices.Contains(emitted, p) {
			t.Errorf("%s: documented, but not emitted:\n\t%s", what, p)
		}
	}
	if len(page) == 0 {
		t.Errorf("%s: no table", what)
	}
}

// described is a metric as a row of the page.
type described struct {
	kind, unit, bounds string
	attributes         map[string]bool
}

func learn(known map[string]*described, m metricdata.Metrics) {
	i := known[m.Name]
	if i == nil {
		i = &described{attributes: map[string]bool{}}
		known[m.Name] = i
	}
	i.unit = m.Unit
	switch data := m.Data.(type) {
	case metricdata.Histogram[float64]:
		learnHistogram(i, data)
	case metricdata.Histogram[int64]:
		learnHistogram(i, data)
	case metricdata.Sum[int64]:
		if i.kind = "up-down counter"; data.IsMonotonic {
			i.kind = "counter"
		}
		for _, p := range data.DataPoints {
			merge(i.attributes, p.Attributes.ToSlice())
		}
	}
}

func learnHistogram[N int64 | float64](i *described, data metricdata.Histogram[N]) {
	i.kind = "histogram"
	for _, p := range data.DataPoints {
		merge(i.attributes, p.Attributes.ToSlice())
		i.bounds = strings.Trim(fmt.Sprint(p.Bounds), "[]")
	}
}

func addNames(known map[string]map[string]bool, name string, attributes []attribute.KeyValue) {
	if known[name] == nil {
		known[name] = map[string]bool{}
	}
	merge(known[name], attributes)
}

func merge(names map[string]bool, attributes []attribute.KeyValue) {
	for _, a := range attributes {
		names[string(a.Key)] = true
	}
}

// note collects the words that stand for outcomes and reasons.
func note(words map[string]map[string]bool, acquire bool, attributes []attribute.KeyValue) {
	for _, a := range attributes {
		if a.Key == "lock.lost.reason" || a.Key == "lock.outcome" && acquire {
			if words[string(a.Key)] == nil {
				words[string(a.Key)] = map[string]bool{}
			}
			words[string(a.Key)][a.Value.AsString()] = true
		}
	}
}

func quoted(names map[string]bool) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		all = append(all, "`"+name+"`")
	}
	return strings.Join(all, " ")
}
