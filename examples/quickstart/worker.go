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
	"os/signal"
	"strconv"
	"time"
)

// task is what a worker is told to do, in the environment variable taskEnv.
type task struct {
	Role  role
	Addr  string
	Key   string
	File  string
	Times int
}

type role string

const (
	roleUnlocked role = "unlocked" // add to the file
	roleLocked   role = "locked"   // add to the file under the lock
	roleHolder   role = "holder"   // take the lock and keep it
)

const taskEnv = "LOCKSTEP_QUICKSTART_TASK"

func isWorker() bool { return os.Getenv(taskEnv) != "" }

// work is the main function of a worker. What it tells the parent is a line each on stdout: sayReady, or a span.
func work() error {
	var t task
	if err := json.Unmarshal([]byte(os.Getenv(taskEnv)), &t); err != nil {
		return err
	}
	signal.Ignore(os.Interrupt) // Ctrl-C reaches all processes of a terminal: the parent decides what it means
	ctx, begin := follow(os.Stdin)
	locks, conn := openLocks(t.Addr)
	defer conn.Close()
	fmt.Println(sayReady)
	select {
	case <-begin:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	switch t.Role {
	case roleUnlocked:
		return repeat(t.Times, func() (span, error) { return addOne(ctx, t.File) })
	case roleLocked:
		return repeat(t.Times, func() (span, error) { return addOneLocked(ctx, locks, t.Key, t.File) })
	case roleHolder:
		return holdUntilDone(ctx, locks, t.Key, leaseTTL, func() { fmt.Println(span{from: time.Now(), to: time.Now()}) })
	}
	return fmt.Errorf("unknown role %q", t.Role)
}

// repeat tells each span when it is over, so that what the telling takes is no part of it.
func repeat(times int, add func() (span, error)) error {
	for range times {
		held, err := add()
		if err != nil {
			return err
		}
		fmt.Println(held)
	}
	return nil
}

const (
	sayReady = "ready" // worker to parent
	sayBegin = "begin" // parent to worker
)

var errParentGone = errors.New("the parent is gone")

// follow reads what the parent says: begin is closed when it says to begin, and ctx ends with the pipe, which the
// operating system closes however the parent ends.
func follow(stdin io.Reader) (ctx context.Context, begin <-chan struct{}) {
	ctx, cancel := context.WithCancelCause(context.Background())
	said := make(chan struct{})
	go func() {
		lines := bufio.NewScanner(stdin)
		if lines.Scan() && lines.Text() == sayBegin {
			close(said)
		}
		for lines.Scan() {
		}
		cancel(errParentGone)
	}()
	return ctx, said
}

// addOne reads the number in file and writes the next one. Its span is between the two ends of that: inside the hold,
// if there is one.
func addOne(ctx context.Context, file string) (span, error) {
	from := time.Now()
	n, err := readCounter(file)
	if err != nil {
		return span{}, err
	}
	if ctx.Err() != nil { // the lock is lost: to write now could undo what its next holder has written
		return span{}, context.Cause(ctx)
	}
	if err := writeCounter(file, n+1); err != nil {
		return span{}, err
	}
	return span{from, time.Now()}, nil
}

func readCounter(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(bytes.TrimSpace(text)))
}

// writeCounter replaces file as a whole: who reads it without a lock may find an old number, but never half of one.
func writeCounter(file string, n int) error {
	mine := fmt.Sprintf("%s.%d", file, os.Getpid())
	if err := os.WriteFile(mine, fmt.Appendln(nil, n), 0o600); err != nil {
		return err
	}
	return os.Rename(mine, file)
}
