package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// hold is one of the holds of a row. They are kept in the order of their ends.
type hold struct {
	Token   []byte
	Expires int64
	Slot    int // -1: it has none
}

// shared are the holds of a key that have not ended. The error says that the key has something else.
func (r *record) shared() ([]hold, error) {
	if !r.held() {
		return nil, nil
	}
	var all []hold
	if r.kind != kindShared || len(r.holds) > 0 && json.Unmarshal(r.holds, &all) != nil {
		return nil, errWrongType
	}
	return slices.DeleteFunc(all, func(h hold) bool { return h.Expires <= r.now }), nil
}

func find(all []hold, token string) int {
	return slices.IndexFunc(all, func(h hold) bool { return string(h.Token) == token })
}

// keep stores the holds of a group. The key lives as long as the last of them.
func (r *record) keep(group string, all []hold) error {
	if len(all) == 0 {
		r.put(kindFree, "", r.now)
		return nil
	}
	slices.SortStableFunc(all, func(a, b hold) int { return cmp.Compare(a.Expires, b.Expires) })
	text, err := json.Marshal(all)
	if err != nil || len(text) > maxHolds {
		return backends.Invalidf("the %d holds of the key take %d bytes, which is over the store's limit of %d", len(all), len(text), maxHolds)
	}
	r.put(kindShared, group, all[len(all)-1].Expires)
	r.holds = text
	return nil
}

// Enter implements [backends.SharedStore]. All holds of a key are in one row, so it takes longer the more
// there are.
func (s *rows) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (res backends.Result, err error) {
	name, life, err := s.prepareTTL(ctx, ttl, key, token, a.Group)
	if err != nil {
		return backends.Result{}, err
	}
	if err := a.Validate(); err != nil {
		return backends.Result{}, backends.Invalid(err.Error())
	}
	err = s.change(ctx, grants, name, func(r *record) (until int64, err error) {
		s.own.shown(r.server)
		res, until, err = r.enter(token, life, a)
		return until, err
	})
	return s.granted(key, token, ttl, res, err)
}

func (r *record) enter(token string, life int64, a backends.Admission) (res backends.Result, until int64, err error) {
	all, err := r.shared()
	if err != nil {
		return res, 0, err
	}
	if r.held() && r.expires == forever {
		return backends.Result{Foreign: true}, 0, nil
	}
	mine := find(all, token)
	if mine < 0 && len(all) > 0 && (string(r.value) != a.Group || a.Limit > 0 && len(all) >= a.Limit) {
		return r.full(all, a), 0, nil
	}
	group := a.Group
	until = forever
	if len(all) > 0 {
		group, until = string(r.value), r.expires // when all have ended, the next epoch begins
	}
	if a.Numbered {
		if res.Fence, err = r.draw(len(all) > 0, byClock); err != nil {
			return res, 0, err
		}
	}
	if mine < 0 {
		h := hold{Token: []byte(token), Slot: -1}
		if a.Slots {
			h.Slot = freeSlot(all)
		}
		mine, all, r.grants = len(all), append(all, h), true
	} else {
		until = all[mine].Expires
	}
	all[mine].Expires = max(all[mine].Expires, r.now+life)
	res.OK, res.Holds, res.Room, res.Slot = true, len(all), a.Room(len(all)), max(all[mine].Slot, 0)
	return res, until, r.keep(group, all)
}

// full is the answer to a call that is not admitted. Left is until all have ended, or as many as are too
// many for the limit.
func (r *record) full(all []hold, a backends.Admission) backends.Result {
	last := all[len(all)-1]
	if string(r.value) == a.Group {
		last = all[len(all)-a.Limit]
	}
	return backends.Result{Holds: len(all), Left: duration(last.Expires - r.now), Holder: backends.InTheWay(backends.LabelOf(string(last.Token)))}
}

// freeSlot is the lowest that no hold has.
func freeSlot(all []hold) int {
	for slot := 0; ; slot++ {
		if !slices.ContainsFunc(all, func(h hold) bool { return h.Slot == slot }) {
			return slot
		}
	}
}

// Renew implements [backends.SharedStore].
func (s *rows) Renew(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
	name, life, err := s.prepareTTL(ctx, ttl, key, token)
	if err != nil {
		return false, err
	}
	ok, err := s.changeHold(ctx, renewals, name, token, func(r *record, all []hold, mine int) error {
		longest := r.expires // an operator may have made it longer
		all[mine].Expires = max(all[mine].Expires, r.now+life)
		err := r.keep(string(r.value), all)
		r.expires = max(r.expires, longest)
		return err
	})
	return s.renewed(key, token, ttl, ok, err)
}

// Leave implements [backends.SharedStore].
func (s *rows) Leave(ctx context.Context, key, token string) (bool, error) {
	name, err := s.prepare(ctx, key, token)
	if err != nil {
		return false, err
	}
	ok, err := s.changeHold(ctx, releases, name, token, func(r *record, all []hold, mine int) error {
		return r.keep(string(r.value), slices.Delete(all, mine, mine+1))
	})
	return s.released(key, token, ok, err)
}

// changeHold changes the holds of a key that has the hold token, before its end.
func (s *rows) changeHold(ctx context.Context, from lane, key []byte, token string, by func(r *record, all []hold, mine int) error) (ok bool, err error) {
	err = s.change(ctx, from, key, func(r *record) (until int64, err error) {
		all, err := r.shared()
		mine := find(all, token)
		if ok = mine >= 0; !ok {
			return 0, err
		}
		until = all[mine].Expires
		return until, by(r, all, mine)
	})
	return ok && err == nil, err
}

// TransferHold implements [backends.SharedTransferStore].
func (s *rows) TransferHold(ctx context.Context, key, from, token string, ttl time.Duration, group string, numbered bool) (res backends.Result, err error) {
	name, life, err := s.prepareTTL(ctx, ttl, key, from, token)
	if err != nil {
		return backends.Result{}, err
	}
	err = s.change(ctx, grants, name, func(r *record) (until int64, err error) {
		s.own.shown(r.server)
		res, until, err = r.transfer(from, token, life, group, numbered)
		return until, err
	})
	return s.granted(key, token, ttl, res, err)
}

func (r *record) transfer(from, token string, life int64, group string, numbered bool) (res backends.Result, until int64, err error) {
	all, err := r.shared()
	if err != nil {
		return res, 0, err
	}
	if r.held() && r.expires == forever {
		return backends.Result{Foreign: true}, 0, nil
	}
	mine := find(all, token)
	again := mine >= 0
	if !again {
		mine = find(all, from)
	}
	res.Holds = len(all)
	switch {
	case mine < 0:
		return res, 0, nil
	case string(r.value) != group:
		return backends.Result{}, 0, errOtherGroup
	}
	if numbered {
		if res.Fence, err = r.draw(again || len(all) > 1, byClock); err != nil {
			return res, 0, err
		}
	}
	h := &all[mine]
	until = h.Expires
	h.Token, h.Expires = []byte(token), max(h.Expires, r.now+life)
	res.OK, res.Slot = true, max(h.Slot, 0)
	return res, until, r.keep(string(r.value), all)
}
