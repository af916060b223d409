package command

import (
	"io"
	"os/signal"
	"slices"
	"time"
)

// patient is a standard error that holds up nobody for long: its reader may have stopped, as a
// terminal after Ctrl-S. A line waits a moment to be written. If it has to wait longer, those after
// it are written when it was, or dropped if they are too many. It is for one goroutine.
type patient struct {
	lines chan line
	last  line
}

type line struct {
	text    []byte
	written chan struct{}
}

func newPatient(w io.Writer) *patient {
	p := &patient{lines: make(chan line, 64), last: line{written: make(chan struct{})}}
	close(p.last.written)
	go func() {
		for l := range p.lines {
			_, _ = w.Write(l.text)
			close(l.written)
		}
	}()
	return p
}

// Write fails never, so that nothing stops for want of a reader.
func (p *patient) Write(text []byte) (int, error) {
	wait := p.wait(0)
	l := line{slices.Clone(text), make(chan struct{})}
	select {
	case p.lines <- l:
		p.last = l
	default:
	}
	if wait {
		p.wait(100 * time.Millisecond)
	}
	return len(text), nil
}

// wait tells whether all is written within a limit.
func (p *patient) wait(limit time.Duration) bool {
	select {
	case <-p.last.written:
		return true
	default:
	}
	if limit <= 0 {
		return false
	}
	select {
	case <-p.last.written:
		return true
	case <-time.After(limit):
		return false
	}
}

// flush returns when all is written. A signal may end the process meanwhile.
func (p *patient) flush() {
	if !p.wait(time.Second) {
		signal.Reset(endings...)
		<-p.last.written
	}
	close(p.lines)
}
