package pgxstore

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/proof/pgtest"
)

// lending is a pool of one connection, and a connection that listens and is lent, until the test ends.
func lending(t *testing.T) (shared, *session) {
	t.Helper()
	server := pgtest.Start(t, "fsync=off")
	pool, err := pgxpool.New(t.Context(), server.DSN()+" pool_max_conns=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := shared{pool, pool.Config(), new(lender), newUses()}
	ctx, cancel := context.WithCancel(t.Context())
	l := listens{func(ctx context.Context) (*pgx.Conn, error) { return s.connect(ctx, nameWakes) }, "", s.lender, time.Hour, nil}
	active, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- l.listen(ctx, "a", func() { close(active) }, func(string) {}) }()
	t.Cleanup(func() { cancel(); <-ended })
	select {
	case <-active:
	case err := <-ended:
		t.Fatal(err)
	}
	return s, s.lender.session()
}

// A statement that takes long runs again on a connection of the pool, and others get the one that listens.
func TestALongStatementGivesTheConnectionThatListensBack(t *testing.T) {
	t.Parallel()
	pool, is := lending(t)
	c, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, lends := c.(*lent); !lends {
		t.Fatalf("the call has %T, and not the connection that listens", c)
	}
	ended := make(chan error, 1)
	var done bool
	go func() { ended <- c.Row(t.Context(), "SELECT pg_sleep(4) IS NOT NULL", nil, &done) }()
	for got := false; !got; { // each waits for a second
		if got = is.borrow(t.Context(), false); got {
			is.giveBack()
		}
		select {
		case err := <-ended:
			t.Fatalf("the statement has ended before another call got the connection: %v", err)
		default:
		}
	}
	if err := <-ended; err != nil || !done {
		t.Errorf("the statement = %v, %v", done, err)
	}
}

// The transactions of the application have the pool, and another call has the connection that listens.
func TestACallWaitsForTheConnectionThatListensIfThePoolIsUsedUp(t *testing.T) {
	t.Parallel()
	pool, is := lending(t)
	transaction, err := pool.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer transaction.Release()
	if !is.borrow(t.Context(), false) {
		t.Fatal("it is not lent")
	}
	giveBack := sync.OnceFunc(is.giveBack)
	defer giveBack()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := make(chan error, 1)
	go func() {
		c, err := pool.Acquire(ctx)
		if err == nil {
			c.Close()
		}
		got <- err
	}()
	for asks := false; !asks; time.Sleep(time.Millisecond) {
		is.mu.Lock()
		asks = len(is.queue) > 0
		is.mu.Unlock()
		if ctx.Err() != nil {
			t.Fatal("the call does not ask for it")
		}
	}
	giveBack()
	if err := <-got; err != nil {
		t.Errorf("Acquire = %v", err)
	}
}

const patience = 10 * time.Second

func TestTheAgeOfAConnectionThatIsLent(t *testing.T) {
	for life, want := range map[time.Duration]time.Duration{
		-1: mostAge, 0: mostAge, 1: leastAge, time.Minute: time.Minute, time.Hour: mostAge,
	} {
		if got := (shared{config: &pgxpool.Config{MaxConnLifetime: life}}).age(); got != want {
			t.Errorf("a pool whose connections live for %v: %v, want %v", life, got, want)
		}
	}
}

// A call whose ctx ends as it asks for the connection has interrupted the wait for messages, and is gone
// when that ends. The connection lives on, and others get it.
func TestACallThatAsksAndLeavesDoesNotEndTheConnectionThatListens(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	opened, err := pgx.Connect(t.Context(), server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer closeSoon(t.Context(), opened)
	s := &session{conn: opened, answered: time.Now(), back: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		defer s.end()
		ended <- s.run(ctx, func(*pgconn.Notification) {})
	}()
	for range 2000 {
		if s.borrow(past, false) { // or it has come by then
			s.giveBack()
		}
	}
	var one int
	if !s.borrow(t.Context(), false) {
		t.Fatalf("nobody gets the connection any more: %v", <-ended)
	}
	err = opened.QueryRow(t.Context(), "SELECT 1").Scan(&one)
	s.giveBack()
	if err != nil || one != 1 {
		t.Errorf("SELECT 1 = %d, %v", one, err)
	}
	cancel()
	<-ended
}
