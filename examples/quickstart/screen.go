package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// screen writes for a person at a terminal, or for a pipe or file, which get no control characters.
type screen struct {
	io.Writer
	terminal, colour bool
}

func newScreen(out *os.File) *screen {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	return &screen{out, terminal, terminal && os.Getenv("NO_COLOR") == ""} // https://no-color.org
}

// printf drops the error: a screen that is gone is no reason to fail.
func (s *screen) printf(format string, args ...any) { _, _ = fmt.Fprintf(s, format, args...) }

func (s *screen) headline(format string, args ...any) {
	s.printf("\n%s\n", s.paint(bold, fmt.Sprintf(format, args...)))
}

const (
	bold  = "1"
	red   = "31"
	green = "32"
)

func (s *screen) paint(colour, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// bar shows how much is done: at a terminal it moves, elsewhere there is a line for each quarter.
type bar struct {
	*screen
	total int
	drawn time.Time
}

const (
	barWidth  = 40
	barPeriod = 40 * time.Millisecond
)

func (s *screen) progress(total int) *bar { return &bar{screen: s, total: total} }

// show is called for each done, one after the other.
func (b *bar) show(done int) {
	if !b.terminal {
		if quarter := done * 4 / b.total; quarter > (done-1)*4/b.total {
			b.printf("  %3d %%  %d of %d\n", quarter*25, done, b.total)
		}
		return
	}
	if time.Since(b.drawn) < barPeriod {
		return
	}
	b.drawn = time.Now()
	full := barWidth * done / b.total
	b.printf("\r  %s%s  %d of %d", strings.Repeat("█", full), strings.Repeat("░", barWidth-full), done, b.total)
}

// clear makes room for what the bar was about.
func (b *bar) clear() {
	if b.terminal {
		b.printf("\r\x1b[K")
	}
}
