package laboratory

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// This file runs in the process of an owner.

const taskEnv = "LOCKSTEP_LABORATORY_TASK"

// IsOwner tells whether this process was started as an owner.
func IsOwner() bool { return os.Getenv(taskEnv) != "" }

// Own is the main function of the process of an owner. It takes the lock and says so. When it is told to write, it does at once, and only then looks at its context.
func Own(stdin io.Reader, stdout io.Writer) error {
	var t task
	if err := json.Unmarshal([]byte(os.Getenv(taskEnv)), &t); err != nil {
		return err
	}
	signal.Ignore(os.Interrupt) // Ctrl-C reaches all processes of a terminal: the parent decides what it means
	r, ok := rowNamed(t.Strategy)
	if !ok {
		return fmt.Errorf("no strategy %q", t.Strategy)
	}
	var servers []server
	for _, addr := range t.Addrs {
		servers = append(servers, givenServer(addr))
	}
	a, err := newActor("owner", r, servers)
	if err != nil {
		return err
	}
	defer a.close()
	told := make(chan bool, 1)
	go func() { // the pipe ends however the parent ends
		lines := bufio.NewScanner(stdin)
		told <- lines.Scan()
		for lines.Scan() {
		}
		os.Exit(1)
	}()
	say := func(w word) error {
		w.At = time.Now()
		return json.NewEncoder(stdout).Encode(w)
	}
	if t.StopBefore > 0 {
		stopped := a.wire.stopBefore(stop{before: t.StopBefore})
		go func() {
			<-stopped.arrived
			_ = say(word{What: sayStopped, Text: stopped.name}) // who does not hear it kills this process as well
		}()
	}
	opts := []locker.Option{locker.WithTTL(t.TTL)}
	if !t.Extend {
		opts = append(opts, locker.WithoutRenewal())
	}
	if r.run != nil {
		return r.run(context.Background(), a.locks, t.Key, opts, func(_ context.Context, number uint64) error {
			if err := say(word{What: sayHolds, Fence: number}); err != nil {
				return err
			}
			<-told
			return errors.New("the parent is gone")
		})
	}
	l, err := a.locks.TryLock(context.Background(), t.Key, opts...)
	if err != nil {
		return err
	}
	if t.StopBefore > 0 { // a quorum does not need them all: what it has got is as good as nothing said
		select {}
	}
	if err := say(word{What: sayHolds, Expires: l.Lease().Expires, Fence: l.Fence()}); err != nil {
		return err
	}
	if !<-told {
		return errors.New("the parent is gone")
	}
	if err := say(word{What: sayWrites, Fence: l.Fence()}); err != nil {
		return err
	}
	if err := say(word{What: sayLooks, Text: whyLost(l)}); err != nil {
		return err
	}
	_ = l.Unlock(context.Background()) // lost by then
	return nil
}

func whyLost(l *locker.Lock) string {
	var lost *locker.LostError
	if !errors.As(context.Cause(l.Context()), &lost) {
		return ""
	}
	return fmt.Sprintf("lock lost, %s", lost.Reason)
}
