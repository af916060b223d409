package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// progress is the line that shows the progress. On a terminal it stays in its place; elsewhere it
// is repeated at times.
type progress struct {
	out      io.Writer
	terminal bool
	began    time.Time
	shown    time.Time

	running map[string]bool
	done    map[string]int // by pass, fail and skip
	cells   int
	last    string
}

func newProgress(out io.Writer, began time.Time) *progress {
	p := &progress{out: out, began: began, running: make(map[string]bool), done: make(map[string]int)}
	if file, ok := out.(*os.File); ok {
		info, err := file.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

const (
	often  = 200 * time.Millisecond
	seldom = time.Minute
)

func (p *progress) show() {
	pause := seldom
	if p.terminal {
		pause = often
	}
	if time.Since(p.shown) < pause {
		return
	}
	p.shown = time.Now()
	if p.terminal {
		p.write("\r\x1b[K" + p.String())
	} else {
		p.write(p.String() + "\n")
	}
}

// print shows text above the line.
func (p *progress) print(text string) {
	if p.terminal {
		text = "\r\x1b[K" + text
	}
	p.write(text)
}

// write ignores errors.
func (p *progress) write(text string) { _, _ = io.WriteString(p.out, text) }

func (p *progress) end() { p.print(p.String() + "\n") }

func (p *progress) String() string {
	last := p.last[strings.LastIndex(p.last, "/")+1:]
	return fmt.Sprintf("%v  %d passed, %d failed, %d skipped, %d running, %d cells  %.60s",
		time.Since(p.began).Round(time.Second), p.done["pass"], p.done["fail"], p.done["skip"], len(p.running), p.cells, last)
}
