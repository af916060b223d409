package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

// The lock is granted by two of three servers while the third one is down.
func ExampleNew() {
	var servers []*embedded.Server
	var nodes []locker.Locker
	for range 3 {
		server, err := embedded.Start() // in production: servers on machines of their own
		if err != nil {
			log.Fatal(err)
		}
		defer server.Close()
		// In production, give each store redisstore.WithQuarantine: a server that restarts forgets.
		store, client := goredis.Open(&redis.Options{Addr: server.Addr()})
		defer client.Close()
		servers, nodes = append(servers, server), append(nodes, single.New(store))
	}
	quorum, err := redlock.New(nodes)
	if err != nil {
		fmt.Println(err)
		return
	}
	locks := locker.New(quorum)

	servers[0].Close()
	err = locks.Do(context.Background(), "invoice/42", func(ctx context.Context, l *locker.Lock) error {
		fmt.Printf("granted by %d of %d servers\n", l.Lease().Quorum.Granted, l.Lease().Quorum.Size)
		return ctx.Err()
	}, locker.WithWait(5*time.Second))
	fmt.Println(err)
	// Output:
	// granted by 2 of 3 servers
	// <nil>
}

// A write with a number is refused if a later holder has written, as with package fenced.
func ExampleNewFenced() {
	ctx := context.Background()
	nodes := []backends.FencedStore{memory.New(), memory.New(), memory.New()} // or a store on each of three servers
	quorum, err := redlock.NewFenced(nodes)
	if err != nil {
		fmt.Println(err)
		return
	}
	locks := locker.New(quorum)
	var last uint64
	for range 3 {
		err := locks.Do(ctx, "invoice/42", func(ctx context.Context, l *locker.Lock) error {
			fmt.Println("a greater number:", l.Fence() > last)
			last = l.Fence()
			return ctx.Err()
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	// Output:
	// a greater number: true
	// a greater number: true
	// a greater number: true
}

// Two of three servers fail. The error is no contention, and has the answer of each server.
func ExampleQuorumError() {
	var faults backendtest.Faults
	faults.Set(backendtest.All, backendtest.Fail)
	quorum, err := redlock.New([]locker.Locker{
		single.New(faults.Store(memory.New())), single.New(memory.New()), single.New(faults.Store(memory.New())),
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	_, err = locker.New(quorum).TryLock(context.Background(), "invoice/42")
	fmt.Println("held:", errors.Is(err, locker.ErrHeld))
	var votes *redlock.QuorumError
	if errors.As(err, &votes) {
		fmt.Println("needed:", votes.Needed)
		for i, vote := range votes.Votes {
			if vote.Outcome == redlock.Failed {
				fmt.Printf("node %d: %v\n", i+1, vote)
			}
		}
	}
	// Output:
	// held: false
	// needed: 2
	// node 1: injected fault
	// node 3: injected fault
}
