package table_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/table"
)

// TestTheTableIsInOrder asks for the words that readers rely on, and for a reason wherever a row is left
// out: a row that says nothing is played by all of them.
func TestTheTableIsInOrder(t *testing.T) {
	readers := []table.Reader{table.Simulation, table.Wire, table.Laboratory, table.Contract}
	names := map[string]bool{}
	for _, r := range table.All() {
		if r.Name == "" || names[r.Name] {
			t.Errorf("%q is not the name of one row", r.Name)
		}
		names[r.Name] = true
		if len(r.Takes) == 0 {
			t.Errorf("%s takes no store", r.Name)
		}
		if (r.Limited || r.RW || r.Nested) && !r.Shared {
			t.Errorf("%s admits several holders, and a key has one", r.Name)
		}
		left := len(r.Left)
		for _, reader := range readers {
			if why, out := r.Left[reader]; out {
				left--
				if why == "" {
					t.Errorf("%s leaves out %s without a reason", reader, r.Name)
				}
			}
		}
		if left != 0 {
			t.Errorf("%s is left out by somebody who is no reader: %v", r.Name, r.Left)
		}
		if len(r.Left) == len(readers) {
			t.Errorf("nobody plays %s", r.Name)
		}
	}
}

// TestARowDoesWhatItPromises takes a lock of each row over each kind of store that it says.
func TestARowDoesWhatItPromises(t *testing.T) {
	for _, r := range table.All() {
		n := 1
		for _, size := range r.Sizes {
			n = size.Nodes
		}
		stores := make([]*memory.LegacyStore, n)
		for i := range stores {
			stores[i] = memory.New().Legacy()
		}
		for _, kind := range r.Takes {
			if !kind.Has(stores[0]) {
				t.Errorf("%s takes a %s, which a store in memory is not", r.Name, kind)
			}
		}
		l, err := table.New(r, stores, table.Setup{Permits: 2})
		if err != nil {
			t.Errorf("%s: %v", r.Name, err)
			continue
		}
		holds, readers := 1, l
		if r.Limited {
			holds = 2
		}
		if r.RW {
			holds = 2
			if readers, err = table.New(r, stores, table.Setup{Reads: true}); err != nil {
				t.Errorf("%s: %v", r.Name, err)
				continue
			}
		}
		for i := range holds {
			lease, err := readers.Acquire(t.Context(), contract.Request{Key: "k", Token: contract.NewToken(), TTL: time.Second})
			if err != nil || (lease.Fence > 0) != r.Numbered {
				t.Errorf("%s: hold %d: %+v, %v", r.Name, i+1, lease, err)
			}
		}
		if _, err := l.Acquire(t.Context(), contract.Request{Key: "k", Token: contract.NewToken(), TTL: time.Second}); !errors.Is(err, locker.ErrHeld) {
			t.Errorf("%s: one hold too many: %v", r.Name, err)
		}
	}
}

func TestAStoreOfAnotherKindIsAnError(t *testing.T) {
	if _, err := table.New(table.Named("legacy-expire"), []any{memory.New()}, table.Setup{}); err == nil {
		t.Error("a store in memory has no plain commands of its own")
	}
	if _, err := table.New(table.Named("single"), []any{memory.New(), memory.New()}, table.Setup{}); err == nil {
		t.Error("single got two stores")
	}
}
