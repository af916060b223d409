package main

import (
	"fmt"
	"io"
	"time"
)

// screen is where the program prints its story.
type screen struct{ io.Writer }

// printf drops the error: the work goes on if nobody reads any more.
func (s screen) printf(format string, args ...any) { _, _ = fmt.Fprintf(s, format, args...) }

func (s screen) headline(format string, args ...any) {
	s.printf("\n%s\n", fmt.Sprintf(format, args...))
}

// race prints the result of a race, and which processes were at the file in the middle of it.
func (s screen) race(o outcome) {
	came := "no update is lost"
	if lost := o.lost(); lost != 0 {
		came = fmt.Sprintf("%d updates are lost", lost)
	}
	s.printf("  %d increments in %s, and the counter says %d: %s\n", o.expected, seconds(o.took), o.found, came)

	w := middle(o.holds)
	s.printf("\n  Who is between reading and writing: %v of it, a look each %v\n", columns*w.column, w.column)
	pids, rows, count := w.draw(o.holds)
	for i, pid := range pids {
		s.printf("  %8d  %s\n", pid, rows[i])
	}
	s.printf("   at once  %s\n", count)
}

// takeover prints how the holder was killed, and how the next one got the lock.
func (s screen) takeover(t takeover) {
	holder, heir := t.draw()
	s.printf("  %8d  %s\n", t.holder, holder)
	s.printf("  %8d  %s\n", t.heir, heir)
	event := func(when time.Time, format string, args ...any) {
		s.printf("  %8s  %s\n", seconds(when.Sub(t.held)), fmt.Sprintf(format, args...))
	}
	event(t.held, "%d takes the lock for %v, and renews it while it lives (█)", t.holder, leaseTTL)
	event(t.waited, "%d asks for it, and waits (·)", t.heir)
	event(t.killed, "SIGKILL for %d (X): its lease has %s left (░)", t.holder, seconds(t.expired.Sub(t.killed)))
	event(t.taken, "%d has the lock, %s after the kill", t.heir, seconds(t.took()))
	s.printf("  Nobody can tell a dead holder from a slow one, so its lease has to end first:\n" +
		"  at most the TTL after it was last renewed.\n")
}

// table ends the report.
func (s screen) table(unlocked, locked outcome, next takeover) {
	row := func(what string, unlocked, locked any) { s.printf("  %-32s %13v %13v\n", what, unlocked, locked) }
	row("", "without lock", "with lock")
	row("increments expected", unlocked.expected, locked.expected)
	row("increments found", unlocked.found, locked.found)
	row("lost updates", unlocked.lost(), locked.lost())
	row("overlaps (two at the file)", overlaps(unlocked.holds), overlaps(locked.holds))
	row(fmt.Sprintf("SIGKILL to next holder (TTL %v)", leaseTTL), "", seconds(next.took()))
	s.printf("\n")
	switch {
	case locked.fault() != nil: // the error says it
	case unlocked.lost() == 0:
		s.printf("  That nothing was lost without the lock was luck: run it again.\n")
	default:
		s.printf("  With the lock, no update was lost.\n")
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
