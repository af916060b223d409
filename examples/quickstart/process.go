package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// worker is another process of this program. It ends with the ctx of start, and with this process: see follow.
type worker struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Scanner
	stderr bytes.Buffer
}

// start returns when the worker is ready to begin.
func start(ctx context.Context, t task) (*worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	w := &worker{cmd: exec.CommandContext(ctx, self)}
	w.cmd.Env = append(os.Environ(), taskEnv+"="+string(text))
	w.cmd.Stderr = &w.stderr
	w.cmd.WaitDelay = time.Second
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.stdout = bufio.NewScanner(stdout)
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	if !w.stdout.Scan() || w.stdout.Text() != sayReady {
		w.stop()
		return nil, fmt.Errorf("process %d did not get ready: %s", w.pid(), w.complaint())
	}
	return w, nil
}

func (w *worker) pid() int { return w.cmd.Process.Pid }

// begin lets the worker begin. If it has ended instead, next says why.
func (w *worker) begin() { _, _ = fmt.Fprintln(w.stdin, sayBegin) }

// next is the next hold that the worker tells of; io.EOF when it has done its task.
func (w *worker) next() (hold, error) {
	if !w.stdout.Scan() {
		return hold{}, cmp.Or(w.wait(), io.EOF)
	}
	s, err := parseSpan(w.stdout.Text())
	return hold{w.pid(), s}, err
}

// run passes on all that the worker tells of.
func (w *worker) run(told chan<- hold) error {
	w.begin()
	for {
		h, err := w.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		told <- h
	}
}

// wait is for a worker that tells no more.
func (w *worker) wait() error {
	if err := w.cmd.Wait(); err != nil {
		return fmt.Errorf("process %d: %w: %s", w.pid(), err, w.complaint())
	}
	return nil
}

// stop ends the worker with SIGKILL unless it has ended: it does nothing any more, and unlocks nothing.
func (w *worker) stop() {
	_ = w.cmd.Process.Kill() // fails if it has ended
	_ = w.cmd.Wait()         // it was killed, and that is what this would say
}

func (w *worker) complaint() string { return strings.TrimSpace(w.stderr.String()) }
