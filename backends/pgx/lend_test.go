package pgx

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lockstep-go/lockstep/internal/verify/pgtest"
)

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
