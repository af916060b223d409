package sqlstore

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/bounded"
)

// Inspect implements [backends.Inspector].
func (s *PostgreSQL) Inspect(ctx context.Context, key string) (_ backends.State, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	name, err := s.prepare(ctx, key)
	if err != nil {
		return backends.State{}, err
	}
	var text string
	if err := s.exec.Row(ctx, "SELECT lockstep.inspect($1,$2)", []any{name, int64(backends.MaxListed)}, &text); err != nil {
		return backends.State{}, s.explain(ctx, err)
	}
	return shown(text)
}

// told is what lockstep.inspect tells. Labels and the group are in hex, times in microseconds.
type told struct {
	Kind     int
	Foreign  bool
	Print    string
	Fence    uint64
	Waiting  int
	Waiters  []string
	Holding  int
	Group    string
	Reserved int
	Holds    []struct {
		Holder, Print string
		Token         bool
		Left          int64
		Slot          int
	}
}

func shown(text string) (backends.State, error) {
	var t told
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return backends.State{}, fmt.Errorf("unexpected answer to inspect: %w", err)
	}
	if t.Kind > kindShared {
		return backends.State{}, errWrongType
	}
	return t.state(), nil
}

func (t told) state() backends.State {
	state := backends.State{
		Holding: t.Holding, Fence: t.Fence, Waiting: t.Waiting, Reserved: t.Reserved, Foreign: t.Foreign, Print: t.Print,
	}
	if t.Holding > 0 {
		state.Group = plain(t.Group)
	}
	for _, w := range t.Waiters {
		label := fromASCII(plain(w))
		if !backends.ValidHolder(label) { // any program may have written it
			label = ""
		}
		state.Waiters = append(state.Waiters, label)
	}
	for _, h := range t.Holds {
		state.Holds = append(state.Holds, backends.HoldOf(plain(h.Holder), h.Print, h.Token, duration(h.Left), h.Slot))
	}
	return state
}

// kindShared is the kind of a key with shared holds.
const kindShared = 3

func plain(digits string) string {
	text, _ := hex.DecodeString(digits)
	return string(text)
}

// List implements [backends.Lister]: the pages are in the order of the keys. The tables have
// nothing but locks, so prefix may be empty.
func (s *PostgreSQL) List(ctx context.Context, prefix, after string, limit int) (_ backends.Page, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	if err := backends.ValidateLimit(limit); err != nil {
		return backends.Page{}, backends.Invalid(err.Error())
	}
	seen, err := hex.DecodeString(after)
	if err != nil {
		return backends.Page{}, backends.Invalidf("after %q is not the Next of a page", after)
	}
	if err := s.config.ready(ctx); err != nil {
		return backends.Page{}, err
	}
	var text string
	full := s.key(prefix)
	err = s.exec.Row(ctx, "SELECT lockstep.list($1,$2,$3,$4,$5)", []any{full, behind(full), seen, int64(limit), int64(backends.MaxListed)}, &text)
	if err != nil {
		return backends.Page{}, s.explain(ctx, err)
	}
	var list struct {
		Keys []struct {
			Key   string
			State told
		}
		Next string
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return backends.Page{}, fmt.Errorf("unexpected answer to list: %w", err)
	}
	page := backends.Page{Next: list.Next}
	for _, k := range list.Keys {
		if state := k.State.state(); state.Holding > 0 || state.Reserved > 0 || state.Foreign {
			page.Keys = append(page.Keys, backends.KeyState{Key: strings.TrimPrefix(plain(k.Key), s.config.prefix), State: state})
		}
	}
	return page, nil
}

// behind is the first text behind all that begin with prefix; nil: there is none.
func behind(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return append(bytes.Clone(prefix[:i]), prefix[i]+1)
		}
	}
	return nil
}

// Evict implements [backends.Evictor]. A shared key without expiry is never evicted.
func (s *PostgreSQL) Evict(ctx context.Context, key, seen string, e backends.Eviction) (_ bool, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	if err := e.Validate(seen); err != nil {
		return false, backends.Invalid(err.Error())
	}
	name, err := s.prepare(ctx, key)
	if err != nil {
		return false, err
	}
	var closed []byte
	if !e.Now {
		closed = []byte(e.Value(seen))
	}
	return s.yes(ctx, "SELECT outcome, "+transactionAge+" FROM lockstep.evict($1,$2,$3,$4,$5)", name, seen, closed, e.Foreign, reservation)
}

// Inspect implements [backends.Inspector].
func (s *rows) Inspect(ctx context.Context, key string) (_ backends.State, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	name, err := s.prepare(ctx, key)
	if err != nil {
		return backends.State{}, err
	}
	var r record
	defer s.own.settle()
	err = s.on(ctx, grants, func(ctx context.Context, c *databaseConn, _ bool) error {
		return r.scan(c.QueryRowContext(ctx, s.in.names(s.dialect.read), name).Scan)
	})
	if err != nil {
		return backends.State{}, s.notDone(ctx, err)
	}
	return r.state()
}

func (r *record) state() (backends.State, error) {
	state := backends.State{Waiting: backends.NotKnown}
	if r.kept > r.now {
		state.Fence = uint64(r.last)
	}
	switch {
	case !r.held():
		return state, nil
	case r.kind != kindLock && r.kind != kindShared:
		return backends.State{}, errWrongType
	case r.expires == forever:
		state.Foreign = true
		if r.kind == kindLock {
			state.Print = backends.PrintOf(string(r.value))
		}
		return state, nil
	case r.kind == kindLock:
		state.Holding = 1
		state.Holds = []backends.Hold{holdOf(string(r.value), duration(r.expires-r.now), -1)}
		return state, nil
	}
	all, err := r.shared()
	if err != nil {
		return backends.State{}, err
	}
	if state.Holding = len(all); state.Holding > 0 {
		state.Group = string(r.value)
	}
	for _, h := range all[:min(len(all), backends.MaxListed)] {
		state.Holds = append(state.Holds, holdOf(string(h.Token), duration(h.Expires-r.now), h.Slot))
	}
	return state, nil
}

func holdOf(token string, left time.Duration, slot int) backends.Hold {
	return backends.HoldOf(backends.LabelOf(token), backends.PrintOf(token), backends.IsToken(token), left, slot)
}

// List implements [backends.Lister]: the pages are in the order of the keys. The table has nothing
// but locks, so prefix may be empty.
func (s *rows) List(ctx context.Context, prefix, after string, limit int) (_ backends.Page, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	if err := backends.ValidateLimit(limit); err != nil {
		return backends.Page{}, backends.Invalid(err.Error())
	}
	seen, err := hex.DecodeString(after)
	if err != nil {
		return backends.Page{}, backends.Invalidf("after %q is not the Next of a page", after)
	}
	from, err := s.prepare(ctx, prefix)
	if err != nil {
		return backends.Page{}, err
	}
	to := behind(from)
	if to == nil {
		to = bytes.Repeat([]byte{0xff}, maxKey+1) // longer than any key
	}
	seen = append(seen, 0)
	if after != "" && bytes.Compare(seen, from) > 0 {
		from = seen
	}
	if len(from) == 0 { // no key is shorter, and a session may take an empty text for NULL: see errNoEmpty
		from = []byte{0}
	}
	var page backends.Page
	defer s.own.settle()
	err = s.on(ctx, grants, func(ctx context.Context, c *databaseConn, _ bool) (err error) {
		page, err = s.page(ctx, c, from, to, limit)
		return err
	})
	if err != nil {
		return backends.Page{}, s.notDone(ctx, err)
	}
	return page, nil
}

func (s *rows) page(ctx context.Context, c *databaseConn, from, end []byte, limit int) (page backends.Page, err error) {
	found, err := c.QueryContext(ctx, s.in.names(s.dialect.list), from, end, limit)
	if err != nil {
		return page, err
	}
	defer func() { _ = found.Close() }()
	count := 0
	for ; found.Next(); count++ {
		var r record
		var key []byte
		if err := r.scan(func(dest ...any) error { return found.Scan(append(dest, &key)...) }); err != nil {
			return page, err
		}
		page.Next = hex.EncodeToString(key)
		state, err := r.state()
		if err == nil && (state.Holding > 0 || state.Foreign) && bytes.IndexByte(key, 0) < 0 {
			name := strings.TrimPrefix(string(key), s.config.prefix)
			page.Keys = append(page.Keys, backends.KeyState{Key: name, State: state})
		}
	}
	if count < limit {
		page.Next = ""
	}
	return page, found.Err()
}

// Evict implements [backends.Evictor]. A shared key without expiry is never evicted.
func (s *rows) Evict(ctx context.Context, key, seen string, e backends.Eviction) (ok bool, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	if err := e.Validate(seen); err != nil {
		return false, backends.Invalid(err.Error())
	}
	name, err := s.prepare(ctx, key)
	if err != nil {
		return false, err
	}
	defer s.own.settle()
	err = s.change(ctx, grants, name, func(r *record) (until int64, err error) {
		ok, until, err = r.evict(seen, e)
		return until, err
	})
	return ok && err == nil, err
}

func (r *record) evict(seen string, e backends.Eviction) (ok bool, until int64, err error) {
	token := string(r.value)
	switch {
	case !r.held():
		return false, 0, nil
	case r.kind == kindShared:
		return r.evictHold(seen, e)
	case r.kind != kindLock:
		return false, 0, errWrongType
	case backends.PrintOf(token) != seen:
		return false, 0, nil
	case !e.Foreign && !backends.IsToken(token), r.expires == forever && !(e.Foreign && e.Now):
		return false, 0, errForeign
	}
	until = r.expires
	if e.Now {
		r.put(kindFree, "", r.now)
	} else {
		r.put(kindLock, e.Value(seen), r.expires)
	}
	return true, until, nil
}

func (r *record) evictHold(seen string, e backends.Eviction) (ok bool, until int64, err error) {
	all, err := r.shared()
	if err != nil {
		return false, 0, err
	}
	if r.expires == forever {
		return false, 0, errForeign
	}
	mine := slices.IndexFunc(all, func(h hold) bool { return backends.PrintOf(string(h.Token)) == seen })
	if mine < 0 {
		return false, 0, nil
	}
	if !e.Foreign && !backends.IsToken(string(all[mine].Token)) {
		return false, 0, errForeign
	}
	until = all[mine].Expires
	if e.Now {
		return true, until, r.keep(string(r.value), slices.Delete(all, mine, mine+1))
	}
	longest := r.expires // as in Renew
	all[mine].Token = []byte(e.Value(seen))
	err = r.keep(string(r.value), all)
	r.expires = max(r.expires, longest)
	return true, until, err
}
