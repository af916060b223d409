package matrix

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// figuresOf is the key under which a test reports what it has counted.
const figuresOf = "figures"

// Figures logs what a test has counted, such as grants and kills, which no cell says. The artefact of
// the matrix has it too.
func Figures(t testing.TB, format string, args ...any) {
	t.Helper()
	text := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	t.Log(text)
	t.Attr(figuresOf, text)
}

// counted is what a test has reported by [Figures]. A test that runs several times has several.
type counted struct{ test, text string }

// Count adds an attribute of a test to the table, and tells whether that was one of [Figures].
func (t *Table) Count(test, key, value string) bool {
	if key != figuresOf {
		return false
	}
	t.counted = append(t.counted, counted{test, strings.ReplaceAll(value, "|", "/")}) // which ends a cell of Markdown
	return true
}

// figures writes a table of what tests have counted.
func (t *Table) figures(w io.Writer) error {
	if len(t.counted) == 0 {
		return nil
	}
	var text strings.Builder
	text.WriteString("\nWhat tests have counted:\n\n| test | figures |\n|---|---|\n")
	sorted := slices.SortedStableFunc(slices.Values(t.counted), func(a, b counted) int { return strings.Compare(a.test, b.test) })
	for _, c := range sorted {
		fmt.Fprintf(&text, "| `%s` | %s |\n", c.test, c.text)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

var countedRow = regexp.MustCompile("(?m)^\\| `([^`|]+)` \\| ([^|]*) \\|$")

// keepFigures adds those of tests that the table has no figures of.
func (t *Table) keepFigures(markdown string) {
	has := map[string]bool{}
	for _, c := range t.counted {
		has[c.test] = true
	}
	for _, r := range countedRow.FindAllStringSubmatch(markdown, -1) {
		if !has[r[1]] {
			t.counted = append(t.counted, counted{r[1], r[2]})
		}
	}
}
