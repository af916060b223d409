package repository

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	longestPage     = 3000 // words, as wc -w counts them
	longestDecision = 150
)

// TestTheBookIsShort counts the words that a person is asked to read. A page that grows makes another
// one shorter, or says in a review why the limit moves.
func TestTheBookIsShort(t *testing.T) {
	counted := map[string]bool{}
	for _, part := range []struct {
		readers string
		most    int
		pages   []string
	}{
		{"users", 22_000, []string{
			"README.md", "docs/README.md", "docs/stores/*.md", "docs/algorithms.md", "docs/choosing-a-store.md", "docs/errors.md",
			"docs/matrix.md", "docs/migrating.md", "docs/observability.md", "docs/operations.md", "docs/page.md",
			"docs/performance.md", "docs/production.md", "docs/recipes.md", "docs/safety.md", "docs/scaling.md", "docs/security.md",
		}},
		{"contributors", 12_000, []string{
			"CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/adding-a-backend.md", "docs/adding-a-strategy.md", "docs/design.md",
			"docs/releasing.md", "proof/*.md",
		}},
		{"decisions", 7_000, []string{"docs/decisions/*.md"}},
	} {
		sum := 0
		for _, pattern := range part.pages {
			for _, page := range pages(t, pattern) {
				words := len(strings.Fields(read(t, page)))
				sum += words
				t.Logf("%s: %d words of %d", page, words, longestPage)
				if words > longestPage {
					t.Errorf("%s has %d words, over %d", page, words, longestPage)
				}
				counted[page] = true
			}
		}
		t.Logf("%s: %d words of %d", part.readers, sum, part.most)
		if sum > part.most {
			t.Errorf("the pages for %s have %d words, over %d", part.readers, sum, part.most)
		}
	}
	for _, page := range append(pages(t, "*.md"), pages(t, "docs/*.md")...) {
		if !counted[page] {
			t.Errorf("nobody counts the words of %s", page)
		}
	}
}

func pages(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob("../../" + pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("no page %s (%v)", pattern, err)
	}
	return found
}

var decision = regexp.MustCompile(`^(\d{3})-[a-z0-9-]+\.md$`)

// TestDecisionsAreShort: the name of each begins with its number, and so does its title.
func TestDecisionsAreShort(t *testing.T) {
	files, err := os.ReadDir("../../docs/decisions")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, f := range files {
		text := read(t, "../../docs/decisions/"+f.Name())
		name := decision.FindStringSubmatch(f.Name())
		if name == nil {
			t.Errorf("%s: a decision is NNN-title.md", f.Name())
			continue
		}
		number := strings.TrimLeft(name[1], "0")
		if other := seen[number]; other != "" {
			t.Errorf("%s has the number of %s", f.Name(), other)
		}
		seen[number] = f.Name()
		if !strings.HasPrefix(text, "# "+number+". ") {
			t.Errorf("%s does not begin with its number and title", f.Name())
		}
		if words := len(strings.Fields(text)); words > longestDecision {
			t.Errorf("%s has %d words, over %d", f.Name(), words, longestDecision)
		}
	}
}
