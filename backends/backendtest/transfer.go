package backendtest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

var ofTransfer = suite[backends.TransferStore, SharedOutside]{
	sentences: func(TransferHarness) []sentence { return transferSentences },
	give: func(x *fixture, store backends.TransferStore, outside SharedOutside) {
		x.transfers, x.store, x.setShared = store, store, outside.SetShared
		x.numbers, _ = store.(backends.NumberedStore)
		x.holdTransfers, _ = store.(backends.SharedTransferStore)
		x.shared = x.holdTransfers
	},
}

var transferSentences = []sentence{
	{"Transfer stores the value in the place of the other, for ttl from then", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "old", x.long/2)
		x.wantValue(key, "new", x.transfer(key, "old", "new", x.long))
	}},
	{"a value or hold that was transferred keeps others out after the end that it had first", func(x *fixture) {
		key, shared, a := x.key("k"), x.key("shared"), backends.Admission{Limit: 1}
		l := x.prolonged(func(ttl time.Duration) life { return x.grant(key, "old", ttl) }, func() (bool, error) {
			res, err := x.transfers.Transfer(x.Context(), key, "old", "new", x.long, false)
			return res.OK, err
		})
		x.wantHeld(key, "theirs", x.long, l)
		if x.shared == nil {
			return
		}
		x.prolonged(func(ttl time.Duration) life { return x.admit(shared, "old", ttl, a, 1, 0) }, func() (bool, error) {
			res, err := x.holdTransfers.TransferHold(x.Context(), shared, "old", "new", x.long, "", false)
			return res.OK, err
		})
		x.admitNot(shared, "theirs", a, 1)
	}},
	{"Transfer never shortens the life of the key", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "old", x.long)
		x.transfer(key, "old", "new", x.long/2)
		x.wantValue(key, "new", l)
		x.transfer(key, "old", "new", x.long/2)
		x.wantValue(key, "new", l)
	}},
	{"Transfer from a value that key does not hold changes nothing, also if the key is free", func(x *fixture) {
		key, free := x.key("k"), x.key("free")
		l := x.grant(key, "another", x.long)
		x.transferNot(key, "old", "new")
		x.wantValue(key, "another", l)
		x.transferNot(free, "old", "new")
		x.wantNothing(free)
	}},
	{"Transfer from a value that has ended changes nothing, whether the key is free or has a new holder", func(x *fixture) {
		key, free := x.key("k"), x.key("free")
		x.grant(key, "old", 10*time.Millisecond)
		x.endOf(free, x.grant(free, "old", 10*time.Millisecond))
		x.transferNot(free, "old", "new")
		x.wantNothing(free)
		x.endOf(key, life{latest: time.Now()})
		l := x.grant(key, "next", x.long)
		x.transferNot(key, "old", "new")
		x.wantValue(key, "next", l)
	}},
	{"after Transfer the old value neither extends nor removes the key, and moves it no more", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "old", x.long)
		l := x.transfer(key, "old", "new", x.long)
		x.extendNot(key, "old", 2*x.long)
		x.removeNot(key, "old")
		x.transferNot(key, "old", "third")
		x.wantValue(key, "new", l)
		x.remove(key, "new")
	}},
	{"a Transfer that arrives twice is granted twice", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "old", x.long)
		x.transfer(key, "old", "new", x.long)
		x.wantValue(key, "new", x.transfer(key, "old", "new", 2*x.long))
	}},
	{"of concurrent Transfers from one value exactly one is granted", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "old", x.long)
		var granted atomic.Int32
		together(8, func(i int) {
			res, err := x.transfers.Transfer(x.Context(), key, "old", fmt.Sprint("new ", i), x.long, false)
			if err != nil {
				x.Errorf("Transfer: %v", err)
			}
			if res.OK {
				granted.Add(1)
			}
		})
		if n := granted.Load(); n != 1 {
			x.Errorf("%d were granted", n)
		}
	}},
	{"a Transfer with a bad ttl or a ctx that is done, or of a value of another type, changes nothing", func(x *fixture) {
		key, other := x.key("k"), x.key("other")
		l := x.grant(key, "old", x.long)
		ctx, cancel := context.WithCancel(x.Context())
		cancel()
		if _, err := x.transfers.Transfer(ctx, key, "old", "new", x.long, false); !errors.Is(err, context.Canceled) {
			x.Errorf("Transfer with a ctx that is done: %v", err)
		}
		for _, ttl := range []time.Duration{0, x.MaxTTL + time.Millisecond} {
			_, err := x.transfers.Transfer(x.Context(), key, "old", "new", ttl, false)
			x.wantPermanent(fmt.Sprintf("Transfer for %v", ttl), err)
		}
		x.wantValue(key, "old", l)
		x.outside.SetOther(other)
		_, err := x.transfers.Transfer(x.Context(), other, "old", "new", x.long, false)
		x.wantPermanent("Transfer of another type", err)
		if !errors.Is(err, backends.ErrWrongType) {
			x.Errorf("Transfer of another type: %v", err)
		}
	}},
	{"a numbered Transfer has a greater number, and the same when it arrives twice", func(x *fixture) {
		if x.numbers == nil {
			return
		}
		key := x.key("k")
		first, err := x.numbers.SetNXNumbered(x.Context(), key, "old", x.long, backends.Turn{})
		if err != nil || !first.OK {
			x.Fatalf("SetNXNumbered = %+v, %v", first, err)
		}
		var numbers [2]uint64
		for i := range numbers {
			res, err := x.transfers.Transfer(x.Context(), key, "old", "new", x.long, true)
			if err != nil || !res.OK {
				x.Fatalf("Transfer = %+v, %v; want it granted", res, err)
			}
			numbers[i] = res.Fence
		}
		if numbers[0] <= first.Fence || numbers[1] != numbers[0] {
			x.Errorf("the numbers are %v after %d; want a greater one, twice", numbers, first.Fence)
		}
	}},
	{"TransferHold moves one hold with its life, and no other", func(x *fixture) {
		if x.shared == nil {
			return
		}
		key, a := x.key("k"), backends.Admission{Group: "group", Limit: 2}
		x.admit(key, "old", x.long, a, 1, 1)
		x.admit(key, "other", x.long, a, 2, 0)
		if res := x.transferHold(key, "old", "new", a); res.Holds != 2 || res.Room != 0 {
			x.Errorf("TransferHold = %+v; want 2 holds", res)
		}
		x.renewNot(key, "old", x.long)
		x.leaveNot(key, "old")
		x.renew(key, "new", x.long)
		x.renew(key, "other", x.long)
		x.admitNot(key, "third", a, 2)
		x.admitNot(key, "third", backends.Admission{Group: "another"}, 2)
		x.leave(key, "new")
		x.admit(key, "third", x.long, a, 2, 0)
	}},
	{"TransferHold never shortens the life of a hold", func(x *fixture) {
		if x.shared == nil {
			return
		}
		key := x.key("k")
		l := x.admit(key, "old", x.long, of("ann"), 1, -1)
		x.wantTransferHold(key, "old", "new", x.long/2, of("ann"))
		x.enterNot(key, "bob", "token", x.long, l)
		x.wantTransferHold(key, "old", "new", x.long/2, of("ann"))
		x.enterNot(key, "bob", "token", x.long, l)
	}},
	{"TransferHold from a hold that is not there changes nothing, also if the key is free", func(x *fixture) {
		if x.shared == nil {
			return
		}
		key, free := x.key("k"), x.key("free")
		x.admit(key, "another", x.long, backends.Admission{}, 1, -1)
		x.transferHoldNot(key, "old", "new", 1)
		x.transferHoldNot(free, "old", "new", 0)
		x.leave(key, "another")
		for _, key := range []string{key, free} {
			x.admit(key, "next", x.long, backends.Admission{Limit: 1}, 1, 0)
		}
	}},
	{"TransferHold from a hold that has ended changes nothing, whether the key is free, has a new holder or another hold", func(x *fixture) {
		if x.shared == nil {
			return
		}
		key, beside, free, one, two := x.key("k"), x.key("beside"), x.key("free"), backends.Admission{Limit: 1}, backends.Admission{Limit: 2}
		x.admit(beside, "other", x.long, two, 1, 1)
		x.admit(beside, "old", 10*time.Millisecond, two, 0, 0)
		x.admit(key, "old", 10*time.Millisecond, one, 1, 0)
		l := x.admit(free, "old", 10*time.Millisecond, one, 1, 0)
		x.endOf(free, l)
		time.Sleep(time.Until(l.latest.Add(x.tolerance()))) // without a call that would remove the hold
		x.transferHoldNot(free, "old", "new", 0)
		x.wantNothing(free)
		x.transferHoldNot(beside, "old", "new", 1)
		x.admit(beside, "next", x.long, two, 2, 0)
		x.endOf(key, life{latest: time.Now()})
		x.admit(key, "next", x.long, one, 1, 0)
		x.transferHoldNot(key, "old", "new", 1)
		x.renew(key, "next", x.long)
		x.admitNot(key, "third", one, 1)
	}},
	{"of concurrent TransferHolds from one hold exactly one is granted", func(x *fixture) {
		if x.shared == nil {
			return
		}
		key, a := x.key("k"), backends.Admission{Group: "group", Limit: 2}
		x.admit(key, "old", x.long, a, 1, 1)
		x.admit(key, "other", x.long, a, 2, 0)
		var granted atomic.Int32
		together(8, func(i int) {
			res, err := x.holdTransfers.TransferHold(x.Context(), key, "old", fmt.Sprint("new ", i), x.long, a.Group, false)
			if err != nil {
				x.Errorf("TransferHold: %v", err)
			}
			if res.OK {
				granted.Add(1)
			}
		})
		if n := granted.Load(); n != 1 {
			x.Errorf("%d were granted", n)
		}
		x.admitNot(key, "third", a, 2)
	}},
	{"a TransferHold with a bad ttl or a ctx that is done, or of a value of another type, changes nothing", func(x *fixture) {
		if x.shared == nil {
			return
		}
		key, other, lock, foreign := x.key("k"), x.key("other"), x.key("lock"), x.key("foreign")
		move := func(ctx context.Context, key string, ttl time.Duration) (backends.Result, error) {
			return x.holdTransfers.TransferHold(ctx, key, "old", "new", ttl, "", false)
		}
		l := x.admit(key, "old", x.long, backends.Admission{}, 1, -1)
		x.done("TransferHold", func(ctx context.Context) error {
			_, err := move(ctx, key, 2*x.long)
			return err
		})
		for _, ttl := range []time.Duration{-x.long, 0, time.Millisecond - 1, x.MaxTTL + time.Millisecond} {
			_, err := move(x.Context(), key, ttl)
			x.wantPermanent(fmt.Sprintf("TransferHold for %v", ttl), err)
		}
		x.wantLife(key, l)
		x.renewNot(key, "new", x.long)
		x.leave(key, "old")
		x.outside.SetOther(other)
		x.outside.Set(lock, "old", 0)
		for key, value := range map[string]string{other: "", lock: "old"} {
			_, err := move(x.Context(), key, x.long)
			x.wantPermanent("TransferHold of another type", err)
			if !errors.Is(err, backends.ErrWrongType) {
				x.Errorf("TransferHold of another type: %v", err)
			}
			x.wantForever(key, value)
		}
		x.setShared(foreign)
		if res, err := move(x.Context(), foreign, x.long); err != nil || res.OK {
			x.Errorf("TransferHold of a value without expiry = %+v, %v; want it refused", res, err)
		}
		x.wantForever(foreign, "")
	}},
	{"TransferHold to another group is a permanent error that matches ErrOtherGroup, and changes nothing", func(x *fixture) {
		if x.shared == nil {
			return
		}
		key, read, write := x.key("k"), backends.Admission{Group: "read"}, backends.Admission{Group: "write", Limit: 1}
		x.admit(key, "old", x.long, read, 1, -1)
		x.admit(key, "other", x.long, read, 2, -1)
		for _, group := range []string{"write", "", "Read", "read "} {
			res, err := x.holdTransfers.TransferHold(x.Context(), key, "old", "new", x.long, group, group == "write")
			if res.OK || !errors.Is(err, backends.ErrOtherGroup) || !backends.Permanent(err) {
				x.Errorf("TransferHold to the group %q = %+v, %v; want a permanent error that matches ErrOtherGroup", group, res, err)
			}
		}
		x.renewNot(key, "new", x.long)
		x.renew(key, "old", x.long)
		x.admitNot(key, "writer", write, 2)
		if res := x.transferHold(key, "old", "new", read); res.Holds != 2 {
			x.Errorf("TransferHold = %+v; want 2 holds", res)
		}
	}},
	{"TransferHold finds a value of the type of holds without expiry Foreign, and leaves it alone", func(x *fixture) {
		if x.shared == nil {
			return
		}
		key := x.key("k")
		x.setShared(key)
		res, err := x.holdTransfers.TransferHold(x.Context(), key, "old", "new", x.long, "", false)
		if want := (backends.Result{Foreign: true}); err != nil || res != want {
			x.Errorf("TransferHold = %+v, %v; want %+v", res, err, want)
		}
		x.wantForever(key, "")
	}},
	{"a hold that moves keeps its slot", func(x *fixture) {
		if x.shared == nil {
			return
		}
		key := x.key("k")
		x.slot(key, "first", slotted(3), 0)
		x.slot(key, "old", slotted(3), 1)
		x.leave(key, "first")
		for range 2 {
			if res := x.transferHold(key, "old", "new", slotted(3)); res.Slot != 1 {
				x.Errorf("slot %d; want 1", res.Slot)
			}
		}
		x.slot(key, "next", slotted(3), 0)
		x.slot(key, "the one after", slotted(3), 2)
	}},
	{"a numbered hold that moves alone begins an epoch; beside others it has the number of theirs", func(x *fixture) {
		if x.shared == nil {
			return
		}
		key, a := x.key("k"), backends.Admission{Numbered: true}
		first := x.enterNumbered(key, "old", a)
		alone := x.transferHold(key, "old", "new", a).Fence
		if again := x.transferHold(key, "old", "new", a).Fence; alone <= first || again != alone {
			x.Errorf("the numbers are %d and %d after %d; want a greater one, twice", alone, again, first)
		}
		if other := x.enterNumbered(key, "other", a); other != alone {
			x.Errorf("another hold of the epoch has the number %d, want %d", other, alone)
		}
		if beside := x.transferHold(key, "new", "newer", a).Fence; beside != alone {
			x.Errorf("the hold that moves beside another has the number %d, want %d", beside, alone)
		}
	}},
}

// transfer calls Transfer, which must be granted.
func (x *fixture) transfer(key, from, value string, ttl time.Duration) life {
	x.Helper()
	began := time.Now()
	res, err := x.transfers.Transfer(x.Context(), key, from, value, ttl, false)
	if err != nil || !res.OK || res.Fence != 0 {
		x.Fatalf("Transfer(%.60q, %.60q, %.60q) = %+v, %v; want it granted without a number", key, from, value, res, err)
	}
	return life{began.Add(ttl), time.Now().Add(ttl)}
}

// transferNot calls Transfer, with and without a number, which must not find from.
func (x *fixture) transferNot(key, from, value string) {
	x.Helper()
	for _, numbered := range []bool{false, x.numbers != nil} {
		res, err := x.transfers.Transfer(x.Context(), key, from, value, x.long, numbered)
		if err != nil || res.OK || res.Fence != 0 {
			x.Fatalf("Transfer(%.60q, %.60q, %.60q, numbered: %v) = %+v, %v; want it refused", key, from, value, numbered, res, err)
		}
	}
}

// transferHold calls TransferHold, which must be granted.
func (x *fixture) transferHold(key, from, token string, a backends.Admission) backends.Result {
	x.Helper()
	res, err := x.holdTransfers.TransferHold(x.Context(), key, from, token, x.long, a.Group, a.Numbered)
	if err != nil || !res.OK || (res.Fence != 0) != a.Numbered {
		x.Fatalf("TransferHold(%.60q, %.60q, %.60q) = %+v, %v; want it granted", key, from, token, res, err)
	}
	return res
}

func (x *fixture) wantTransferHold(key, from, token string, ttl time.Duration, a backends.Admission) {
	x.Helper()
	if res, err := x.holdTransfers.TransferHold(x.Context(), key, from, token, ttl, a.Group, false); err != nil || !res.OK {
		x.Fatalf("TransferHold(%.60q, %.60q, %.60q) = %+v, %v; want it granted", key, from, token, res, err)
	}
}

// transferHoldNot calls TransferHold, with and without a number, which must not find from beside the holds.
func (x *fixture) transferHoldNot(key, from, token string, holds int) {
	x.Helper()
	for _, numbered := range []bool{false, true} {
		res, err := x.holdTransfers.TransferHold(x.Context(), key, from, token, x.long, "", numbered)
		if err != nil || res.OK || res.Holds != holds || res.Fence != 0 {
			x.Fatalf("TransferHold(%.60q, %.60q, %.60q, numbered: %v) = %+v, %v; want it refused beside %d holds", key, from, token, numbered, res, err, holds)
		}
	}
}

// enterNumbered calls Enter, which must be granted, and returns the number.
func (x *fixture) enterNumbered(key, token string, a backends.Admission) uint64 {
	x.Helper()
	res, err := x.shared.Enter(x.Context(), key, token, x.long, a)
	if err != nil || !res.OK || res.Fence == 0 {
		x.Fatalf("Enter(%.60q, %.60q) = %+v, %v; want it granted with a number", key, token, res, err)
	}
	return res.Fence
}
