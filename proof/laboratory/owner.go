package laboratory

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// An owner is an owner of the lock in a process of its own, which can be killed and stopped by the operating system. It
// ends with the ctx of its start, and with this process.
type owner struct {
	who    string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Scanner
	stderr bytes.Buffer
}

// A task is what an owner is told when it starts.
type task struct {
	Strategy   string
	Addrs      []string
	Key        string
	TTL        time.Duration
	Extend     bool
	StopBefore int // the how manieth command of its attempt it must not send; 0: none
}

// A word is what an owner says.
type word struct {
	What    string
	At      time.Time // by the wall clock, which all processes of a machine share
	Expires time.Time
	Fence   uint64
	Text    string
}

// What owners say, in this order.
const (
	sayStopped = "stopped" // before the command in Text: the last that is heard of it
	sayHolds   = "holds"
	sayWrites  = "writes" // when it was told to, without a look at its context
	sayLooks   = "looks"  // at its context; Text is why it has ended, if it has
)

// start starts an owner of the lock of this stage.
func (s *stage) start(ctx context.Context, who string, t task) (*owner, error) {
	t.Strategy, t.Key = s.row.Name, s.key
	for _, srv := range s.servers {
		t.Addrs = append(t.Addrs, srv.Addr())
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	o := &owner{who: who, cmd: exec.CommandContext(ctx, self)}
	o.cmd.Env = append(os.Environ(), taskEnv+"="+string(text))
	o.cmd.Stderr = &o.stderr
	o.cmd.WaitDelay = time.Second
	if o.stdin, err = o.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := o.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	o.stdout = bufio.NewScanner(stdout)
	if err := o.cmd.Start(); err != nil {
		return nil, err
	}
	s.owners = append(s.owners, o)
	return o, nil
}

// hears waits for the next word, which has to be this one.
func (o *owner) hears(what string) (word, error) {
	var w word
	if !o.stdout.Scan() {
		err := o.cmd.Wait()
		return w, fmt.Errorf("%s ended: %w: %s", o.who, errors.Join(err, o.stdout.Err()), bytes.TrimSpace(o.stderr.Bytes()))
	}
	if err := json.Unmarshal(o.stdout.Bytes(), &w); err != nil {
		return w, err
	}
	if w.What != what {
		return w, fmt.Errorf("%s says %q, want %q", o.who, w.What, what)
	}
	return w, nil
}

// stop ends it with SIGKILL unless it has ended: it does nothing any more, and unlocks nothing.
func (o *owner) stop() {
	_ = o.cmd.Process.Kill() // fails if it has ended
	_ = o.cmd.Wait()         // it was killed, and that is what this would say
}

// tellToWrite makes it go on when it is given the processor.
func (o *owner) tellToWrite() error {
	_, err := fmt.Fprintln(o.stdin, sayWrites)
	return err
}

// holdsSince takes what it said into the record.
func (s *stage) holdsSince(o *owner, w word) int {
	s.Holds = append(s.Holds, Hold{Who: o.who, From: w.At, Until: w.At, Works: w.At})
	s.Events = append(s.Events, Event{w.At, o.who, "is granted the lock" + numberOf(w.Fence)})
	return len(s.Holds) - 1
}
