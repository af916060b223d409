package sloglocker_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/lockstep-go/lockstep/middleware/sloglocker"
)

// TestTheTableOfThePageListsEveryEvent compares the table of docs/observability.md with the events.
func TestTheTableOfThePageListsEveryEvent(t *testing.T) {
	page, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `((?:lock|term) [^`]+)` \\| (Debug|Info|Warn|Error) \\|").FindAllStringSubmatch(string(page), -1) {
		found[row[1]] = row[2]
	}
	for event, level := range sloglocker.Levels {
		want := map[string]string{"DEBUG": "Debug", "INFO": "Info", "WARN": "Warn", "ERROR": "Error"}[level.String()]
		if found[string(event)] != want {
			t.Errorf("%q is at %s; the page says %q", event, want, found[string(event)])
		}
	}
	if len(found) != len(sloglocker.Levels) {
		t.Errorf("%d messages on the page, %d events", len(found), len(sloglocker.Levels))
	}
}
