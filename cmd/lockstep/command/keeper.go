//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package command

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// No store shortens a lease. So when the command has ended and -at-least has not, the lock would stay
// locked for the rest of its TTL. The keeper is a process of this program that stays until -at-least is
// over, and releases the lock then: for less than a TTL. If it is killed, the lease ends by itself.
// lockstep itself does not stay: its exit code would come late, and a pipe or a script would wait.
// A first lease of -at-least would be lost in a short outage.

const keeperName = "lockstep-keeper" // argv[0] of the keeper

// kept is what the keeper reads from its standard input.
type kept struct {
	Stores   []string
	Strategy string
	Prefix   string
	MaxTTL   time.Duration
	Quorum   int
	Permits  int
	Timeout  time.Duration
	Key      string
	Token    string
	Until    int64 // of now
}

// keep lets the lock end with -at-least, if its lease ends later. It returns at once, unless this is
// process 1 of a container: a keeper would end with it.
func (r *running) keep(l *locker.Lock, signals <-chan os.Signal) {
	lease := l.Lease()
	left := time.Until(lease.Granted.Add(r.atLeast))
	if left <= 0 || time.Until(lease.Expires) <= left {
		return
	}
	k := kept{r.opened, r.strategy, r.prefix, r.maxTTL, r.quorum, r.permits, r.timeout, lease.Key, lease.Token, now() + int64(left)}
	if os.Getpid() != 1 {
		if err := k.start(); err != nil {
			r.detail("%s: the lock stays locked until its lease ends: %v", r.name, err)
		}
		return
	}
	over := time.After(left)
	for {
		select {
		case <-over:
			r.release(lease)
			return
		case s := <-signals:
			if s == syscall.SIGINT || s == syscall.SIGTERM {
				return
			}
		}
	}
}

// start starts the keeper.
func (k kept) start() error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer drop(read)
	defer drop(write)
	// In a session of its own no signal of a terminal or of a group reaches it. It keeps no file of the
	// caller open: cron and pipes wait for all that have their output.
	cmd := &exec.Cmd{Path: self(), Args: []string{keeperName}, Stdin: read, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = cmd.Process.Release()
	return json.NewEncoder(write).Encode(k) // it fits into the pipe
}

// keeperMain is the keeper.
func keeperMain(p Program) int {
	survivePipe()
	var k kept
	if json.NewDecoder(os.Stdin).Decode(&k) != nil {
		return exitUsage
	}
	ctx := context.Background()
	r := &running{cli: &cli{
		program: p, out: os.Stdout, err: os.Stderr, strategy: k.Strategy, prefix: k.Prefix, maxTTL: k.MaxTTL, quorum: k.Quorum,
		permits: k.Permits, timeout: k.Timeout,
	}}
	stores, err := r.openAll(ctx, k.Stores, 0)
	if err != nil {
		return exitUnavailable
	}
	defer shut(stores)
	_ = os.Chdir("/") // a disk can be unmounted meanwhile
	for left := k.Until - now(); left > 0; left = k.Until - now() {
		time.Sleep(min(time.Duration(left), time.Second)) // timers stand still while the machine is suspended
	}
	if r.locks, _, err = r.locker(ctx, stores); err != nil {
		return exitUnavailable
	}
	r.release(contract.Lease{Key: k.Key, Token: k.Token})
	return 0
}
