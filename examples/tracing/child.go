package main

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
	"strings"
	"time"
)

// task is what a child is told, in the environment variable taskEnv.
type task struct {
	Service, Addr, Key string
	TTL                time.Duration
}

const (
	taskEnv  = "LOCKSTEP_TRACING_TASK"
	endLimit = 10 * time.Second // for requests that are under way, and for spans
)

func isChild() bool { return os.Getenv(taskEnv) != "" }

func childTask() (t task, err error) {
	err = json.Unmarshal([]byte(os.Getenv(taskEnv)), &t)
	return t, err
}

// follow reads what the parent says: told is closed with the first line, and ctx ends with the pipe.
func follow(stdin io.Reader) (ctx context.Context, told <-chan struct{}) {
	ctx, cancel := context.WithCancelCause(context.Background())
	said := make(chan struct{})
	go func() {
		lines := bufio.NewScanner(stdin)
		if lines.Scan() {
			close(said)
		}
		for lines.Scan() {
		}
		cancel(errors.New("the parent is gone"))
	}()
	return ctx, said
}

// process is a child, as the parent has it.
type process struct {
	task
	addr   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	pipe   io.ReadCloser // from its stdout
	stdout *bufio.Reader
	stderr bytes.Buffer
}

// start returns when the child listens. The child ends with ctx, and with this process.
func start(ctx context.Context, t task) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	p := &process{task: t, cmd: exec.CommandContext(ctx, self)}
	p.cmd.Env = append(os.Environ(), taskEnv+"="+string(text))
	p.cmd.Stderr = &p.stderr
	p.cmd.WaitDelay = time.Second
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.pipe, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	p.stdout = bufio.NewReader(p.pipe)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	addr, err := p.stdout.ReadString('\n')
	if err != nil {
		p.stop()
		return nil, p.failed(err)
	}
	p.addr = strings.TrimSpace(addr)
	return p, nil
}

// tell lets work end that lasts until then. If the child has ended, its requests say so.
func (p *process) tell() { _, _ = fmt.Fprintln(p.stdin, "done") }

// finish ends the child, and returns what was seen there.
func (p *process) finish() (seen telemetry, err error) {
	_ = p.stdin.Close()
	if err := json.NewDecoder(p.stdout).Decode(&seen); err != nil {
		p.stop()
		return telemetry{}, p.failed(err)
	}
	if err := p.cmd.Wait(); err != nil {
		return telemetry{}, p.failed(err)
	}
	return seen, nil
}

func (p *process) failed(err error) error {
	return fmt.Errorf("process %s: %w: %s", p.Service, err, strings.TrimSpace(p.stderr.String()))
}

// stop kills the child unless it has ended.
func (p *process) stop() {
	_ = p.cmd.Process.Kill() // fails if it has ended
	_ = p.cmd.Wait()         // it was killed, and that is what this would say
}
