//go:build unix

package election_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/locker/election"
	"github.com/lockstep-go/lockstep/proof/child"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/redis/go-redis/v9"
)

// These tests kill and stop candidates that are processes, on a real server. All times are those of
// one wall clock, in nanoseconds: that of the machine.

const (
	patience   = 30 * time.Second // for what must happen on any machine
	processTTL = time.Second
)

// TestProcess is not a test. It is the code of a candidate, which says on its output
//
//	until NUMBER TIME    its lease does not end before
//	leads NUMBER TIME    it looked at its clocks after that, and led
//	resigns NUMBER TIME  lead returns because it was told to
//	ended NUMBER TIME    lead returns because it leads no more
//
// It resigns when it reads a line.
func TestProcess(t *testing.T) {
	addr := os.Getenv("LOCKSTEP_TEST_REDIS")
	if addr == "" {
		return
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	resign := make(chan struct{})
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			resign <- struct{}{}
		}
		os.Exit(1) // the test has ended
	}()
	e := election.New(locker.New(saying{fenced.New(goredis.New(client))}, locker.WithTTL(processTTL)), key)
	err := e.Run(t.Context(), func(ctx context.Context, term election.Term) error {
		for {
			asked := time.Now()
			if e.IsLeader(ctx) != nil {
				say("ended", term.Number, asked)
				return ctx.Err()
			}
			say("leads", term.Number, asked)
			select {
			case <-resign:
				say("resigns", term.Number, time.Now())
				return nil
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	t.Fatal(err)
}

func say(what string, number uint64, at time.Time) { fmt.Println(what, number, at.UnixNano()) }

// saying says until when the holder of a lease believes.
type saying struct{ locker.Locker }

func (s saying) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := s.Locker.Acquire(ctx, req)
	if err == nil {
		say("until", lease.Fence, lease.Expires)
	}
	return lease, err
}

func (s saying) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	lease, err := s.Locker.Extend(ctx, lease, ttl)
	if err == nil {
		say("until", lease.Fence, lease.Expires)
	}
	return lease, err
}

// A poll has the candidates, and what they have said.
type poll struct {
	*testing.T
	server *redistest.Server

	mu    sync.Mutex
	terms map[uint64]*reign
}

// A reign is a term as its process has told of it.
type reign struct {
	who                               *process
	first, last, until, ends, resigns int64
}

type process struct {
	*exec.Cmd
	in io.Writer
}

func (p *poll) start() *process {
	cmd, in, out := child.Start(p.T, "LOCKSTEP_TEST_REDIS="+p.server.Addr())
	c := &process{cmd, in}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.heard(c, lines.Text())
		}
	}()
	return c
}

func (p *poll) heard(who *process, line string) {
	var what string
	var number uint64
	var at int64
	if n, _ := fmt.Sscan(line, &what, &number, &at); n < 3 {
		return // it is from package testing
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.terms[number]
	if r == nil {
		r = &reign{who: who}
		p.terms[number] = r
	}
	switch what {
	case "until":
		r.until = max(r.until, at)
	case "leads":
		if r.last = at; r.first == 0 {
			r.first = at
		}
	case "ended":
		r.ends = at
	case "resigns":
		r.resigns = at
	}
}

// leader waits for a term with a number above after.
func (p *poll) leader(after uint64) (number uint64, who *process) {
	p.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		for n, r := range p.terms {
			if n > max(after, number) && r.first > 0 {
				number, who = n, r.who
			}
		}
		p.mu.Unlock()
		if number > 0 {
			return number, who
		}
		if time.Now().After(deadline) {
			p.Fatalf("nobody leads within %v", patience)
		}
	}
}

// ended waits until the process of a term has said that lead returned.
func (p *poll) ended(number uint64) {
	p.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		ends := p.terms[number].ends
		p.mu.Unlock()
		if ends > 0 {
			return
		}
		if time.Now().After(deadline) {
			p.Fatalf("term %d has not ended within %v", number, patience)
		}
	}
}

func TestOfProcessesThatDieStopAndResignOneLeadsAtATime(t *testing.T) {
	t.Parallel()
	p := &poll{T: t, server: redistest.Start(t), terms: map[uint64]*reign{}}
	for range 3 {
		p.start()
	}
	number, who := p.leader(0)
	for round := range 9 {
		time.Sleep(processTTL / 2) // a renewal or two
		last, stopped := number, false
		switch round % 3 {
		case 0:
			if err := who.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = who.Wait() // it was killed
		case 1:
			stopped = true
			if err := who.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		case 2:
			if _, err := fmt.Fprintln(who.in); err != nil {
				t.Fatal(err)
			}
		}
		before := who
		number, who = p.leader(last)
		if stopped {
			if err := before.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			p.ended(last) // it finds that it does not lead any more
		}
		if round%3 == 0 {
			p.start()
		}
	}
	p.judge()
}

// judge compares each term with the one before it by numbers, which must be the one before it in
// time as well.
func (p *poll) judge() {
	p.mu.Lock()
	defer p.mu.Unlock()
	var numbers []uint64
	for number, r := range p.terms {
		if r.first > 0 {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	var story strings.Builder
	for i, number := range numbers {
		r := p.terms[number]
		fmt.Fprintf(&story, "\nterm %d of process %d: seen for %v", number, r.who.Process.Pid, time.Duration(r.last-r.first))
		if i == 0 {
			continue
		}
		before := p.terms[numbers[i-1]]
		fmt.Fprintf(&story, ", first %v after the last time of the term before", time.Duration(r.first-before.last))
		switch {
		case r.first <= before.last:
			p.Errorf("terms %d and %d overlap", numbers[i-1], number)
		case before.resigns == 0 && r.first < before.until:
			p.Errorf("term %d begins %v before the lease of term %d has ended", number, time.Duration(before.until-r.first), numbers[i-1])
		case r.first < before.resigns:
			p.Errorf("term %d begins before lead of term %d has returned", number, numbers[i-1])
		}
	}
	if len(numbers) < 10 {
		p.Errorf("only %d terms", len(numbers))
	}
	p.Log(story.String())
}
