package observe

import (
	"os"
	"regexp"
	"testing"
)

// blocks of one language on the page.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, block := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		texts = append(texts, block[1])
	}
	if len(texts) == 0 {
		t.Fatalf("no block of %s: is the test looking at the right page?", language)
	}
	return texts
}
