package election_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/election"
	"github.com/lockstep-go/lockstep/strategies/fenced"
)

// Two processes want to lead; in this example each process is a Client. The first one resigns after
// a while, and the second one leads.
func Example() {
	ctx, shutdown := context.WithCancel(context.Background())
	store := memory.New()
	process := func() *election.Election {
		return election.New(locker.New(fenced.New(store)), "billing/leader")
	}
	first, second := process(), process()

	var number uint64
	leading, ended := make(chan struct{}), make(chan error)
	resigns := errors.New("a new version is to lead")
	go func() {
		ended <- first.Run(ctx, func(ctx context.Context, t election.Term) error {
			number = t.Number
			close(leading)
			fmt.Println("the first leads:", first.IsLeader(ctx) == nil)
			return resigns // nil would mean: campaign again
		})
	}()
	<-leading
	fmt.Println("its Run:", <-ended)

	go func() {
		ended <- second.Run(ctx, func(ctx context.Context, t election.Term) error {
			fmt.Println("the second leads, with a greater number:", t.Number > number)
			fmt.Println("the first leads:", first.IsLeader(ctx) == nil)
			shutdown()
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	fmt.Println("its Run:", <-ended)
	// Output:
	// the first leads: true
	// its Run: a new version is to lead
	// the second leads, with a greater number: true
	// the first leads: false
	// its Run: lockstep: campaign "billing/leader": context canceled
}

// Work that runs on a schedule asks whether this process leads. A scheduler such as gocron takes
// the Election itself as its Elector.
func ExampleElection_IsLeader() {
	ctx, shutdown := context.WithCancel(context.Background())
	e := election.New(locker.New(fenced.New(memory.New())), "billing/leader")
	tick := func() { fmt.Println("the leader works:", e.IsLeader(ctx) == nil) }

	tick()
	err := e.Run(ctx, func(ctx context.Context, _ election.Term) error {
		tick()
		shutdown()
		<-ctx.Done() // leads until then
		tick()
		return nil
	})
	fmt.Println(errors.Is(err, context.Canceled))
	// Output:
	// the leader works: false
	// the leader works: true
	// the leader works: false
	// true
}

// Any program may ask who leads. A leader has a name if its Client has a label.
func ExampleLeader() {
	ctx, shutdown := context.WithCancel(context.Background())
	store := memory.New()
	e := election.New(locker.New(fenced.New(store), locker.WithHolder("api-7f9c/4711")), "billing/leader")
	ask := func() {
		switch l, err := election.Leader(context.Background(), store, "billing/leader"); {
		case err != nil:
			fmt.Println(err)
		case l.Led:
			fmt.Println(l.Holder, "leads")
		default:
			fmt.Println("nobody leads")
		}
	}

	ask()
	_ = e.Run(ctx, func(context.Context, election.Term) error {
		ask()
		shutdown()
		return nil
	})
	ask()
	// Output:
	// nobody leads
	// api-7f9c/4711 leads
	// nobody leads
}
