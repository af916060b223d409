package dialects_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
)

// An oldProgram sends the statements of a program of commit f3fa788, and decides as it did.
type oldProgram struct {
	t          testing.TB
	db         *sql.DB
	statements map[string]string
}

func newOldProgram(t testing.TB, db database) oldProgram {
	t.Helper()
	text, err := os.ReadFile("../testdata/statements1." + db.dialect.driver + ".sql")
	if err != nil {
		t.Fatal(err)
	}
	p := oldProgram{t, db.DB, map[string]string{}}
	for part := range strings.SplitSeq("\n"+string(text), "\n-- ") {
		name, statement, _ := strings.Cut(part, "\n")
		p.statements[name] = statement
	}
	return p
}

// An oldRow is a row as that program knows it. Kind -1: there is none.
type oldRow struct {
	now, kind  int64
	value      []byte
	expires    int64
	holds      []byte
	last, kept int64
}

func (r oldRow) held() bool { return r.kind > 0 && r.expires > r.now }

func (r oldRow) has(token string) bool { return r.held() && r.kind == 1 && string(r.value) == token }

// draw gives the next number.
func (r *oldRow) draw(byCount bool) uint64 {
	n := int64(0)
	if r.kept > r.now {
		n = r.last
	}
	n++
	if byCount {
		r.kept = math.MaxInt64
	} else {
		n = max(n, r.now)
		r.kept = max(r.kept, n+backends.FenceRetention.Microseconds())
	}
	r.last = n
	return uint64(n)
}

type oldHold struct {
	Token   []byte
	Expires int64
	Slot    int
}

func (p oldProgram) scan(row *sql.Row) (r oldRow) {
	p.t.Helper()
	var commits bool
	if err := row.Scan(&r.now, &commits, &r.kind, &r.value, &r.expires, &r.holds, &r.last, &r.kept); err != nil || !commits {
		p.t.Errorf("a row read by the old program: %v, %v", commits, err)
	}
	r.value, r.holds = append([]byte{}, r.value...), append([]byte{}, r.holds...)
	return r
}

func (p oldProgram) read(key string) oldRow {
	p.t.Helper()
	return p.scan(p.db.QueryRowContext(p.t.Context(), p.statements["read"], []byte(key)))
}

// exec tells whether a statement has changed a row.
func (p oldProgram) exec(name string, args ...any) bool {
	p.t.Helper()
	result, err := p.db.ExecContext(p.t.Context(), p.statements[name], args...)
	if told, ok := errors.AsType[*mysql.MySQLError](err); ok && (told.Number == 1062 || told.Number == 1213) {
		return false // another program was quicker
	}
	if err != nil {
		p.t.Errorf("the old statement %s: %v", name, err)
		return false
	}
	n, err := result.RowsAffected()
	if err != nil || n > 1 {
		p.t.Errorf("the old statement %s has changed %d rows, %v", name, n, err)
	}
	return n == 1
}

func (p oldProgram) write(key string, was, is oldRow, until int64) bool {
	p.t.Helper()
	if was.kind < 0 {
		return p.exec("insert", []byte(key), is.kind, is.value, is.expires, is.holds, is.last, is.kept)
	}
	return p.exec("swap", is.kind, is.value, is.expires, is.holds, is.last, is.kept,
		[]byte(key), was.kind, was.value, was.expires, was.holds, was.last, was.kept, until)
}

// change is one round: it reads the row, decides, and writes. between is called before it writes.
func (p oldProgram) change(key string, decide func(r *oldRow) (until int64, ok bool), between func()) bool {
	p.t.Helper()
	was := p.read(key)
	is := was
	until, ok := decide(&is)
	if !ok {
		return false
	}
	between()
	return p.write(key, was, is, until)
}

func nothing() {}

const (
	unnumbered = iota
	byClock
	byCount

	minuteUS = int64(60_000_000)
)

func (p oldProgram) take(key, token string, numbering int, between func()) (number uint64, ok bool) {
	p.t.Helper()
	ok = p.change(key, func(r *oldRow) (int64, bool) {
		if r.held() {
			return 0, false
		}
		if numbering != unnumbered {
			number = r.draw(numbering == byCount)
		}
		r.kind, r.value, r.expires, r.holds = 1, []byte(token), r.now+minuteUS, []byte{}
		return math.MaxInt64, true
	}, between)
	return number, ok
}

func (p oldProgram) extend(key, token string) bool {
	p.t.Helper()
	return p.exec("extend", 2*minuteUS, []byte(key), []byte(token))
}

func (p oldProgram) release(key, token string) bool {
	p.t.Helper()
	return p.exec("release", []byte(key), []byte(token))
}

// changeOwn changes the row of a key, before the end of the token's lock.
func (p oldProgram) changeOwn(key, token string, by func(r *oldRow)) bool {
	p.t.Helper()
	return p.change(key, func(r *oldRow) (int64, bool) {
		until := r.expires
		if !r.has(token) {
			return 0, false
		}
		by(r)
		return until, true
	}, nothing)
}

// holds changes the holds of a key. Those that are left are the holds of the group g.
func (p oldProgram) holds(key string, by func(now int64, all []oldHold) ([]oldHold, bool), between func()) bool {
	p.t.Helper()
	return p.change(key, func(r *oldRow) (int64, bool) {
		var all []oldHold
		if r.held() && (r.kind != 3 || string(r.value) != "g" || json.Unmarshal(r.holds, &all) != nil) {
			return 0, false
		}
		until := int64(math.MaxInt64)
		if len(all) > 0 {
			until = r.expires
		}
		all, ok := by(r.now, slices.DeleteFunc(all, func(h oldHold) bool { return h.Expires <= r.now }))
		if !ok {
			return 0, false
		}
		if len(all) == 0 {
			r.kind, r.value, r.expires, r.holds = 0, []byte{}, r.now, []byte{}
			return until, true
		}
		slices.SortStableFunc(all, func(a, b oldHold) int { return int(a.Expires - b.Expires) })
		r.kind, r.value, r.expires = 3, []byte("g"), all[len(all)-1].Expires
		r.holds, _ = json.Marshal(all)
		return until, true
	}, between)
}

func (p oldProgram) enter(key, token string, limit int, between func()) (slot int, ok bool) {
	p.t.Helper()
	ok = p.holds(key, func(now int64, all []oldHold) ([]oldHold, bool) {
		slot = 0
		for slices.ContainsFunc(all, func(h oldHold) bool { return h.Slot == slot }) {
			slot++
		}
		return append(all, oldHold{[]byte(token), now + minuteUS, slot}), len(all) < limit
	}, between)
	return slot, ok
}

func (p oldProgram) renew(key, token string) bool {
	p.t.Helper()
	return p.holds(key, func(now int64, all []oldHold) ([]oldHold, bool) {
		mine := slices.IndexFunc(all, func(h oldHold) bool { return string(h.Token) == token })
		if mine < 0 {
			return nil, false
		}
		all[mine].Expires = now + 2*minuteUS
		return all, true
	}, nothing)
}

func (p oldProgram) leave(key, token string) bool {
	p.t.Helper()
	return p.holds(key, func(_ int64, all []oldHold) ([]oldHold, bool) {
		n := len(all)
		all = slices.DeleteFunc(all, func(h oldHold) bool { return string(h.Token) == token })
		return all, len(all) < n
	}, nothing)
}

// sweep is that of the old program: it selects the keys that are old, and each DELETE asks again whether they are.
func (p oldProgram) sweep() (removed []string) {
	p.t.Helper()
	found, err := p.db.QueryContext(p.t.Context(), p.statements["old"])
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = found.Close() }()
	var keys [][]byte
	for found.Next() {
		var key []byte
		if err := found.Scan(&key); err != nil {
			p.t.Fatal(err)
		}
		keys = append(keys, key)
	}
	if found.Err() != nil {
		p.t.Fatal(found.Err())
	}
	for _, key := range keys {
		if p.exec("remove", key) {
			removed = append(removed, string(key))
		}
	}
	slices.Sort(removed)
	return removed
}

func (p oldProgram) list() (keys []string) {
	p.t.Helper()
	found, err := p.db.QueryContext(p.t.Context(), p.statements["list"], []byte{}, bytes.Repeat([]byte{0xff}, 8), 100)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = found.Close() }()
	for found.Next() {
		var r oldRow
		var commits bool
		var key []byte
		if err := found.Scan(&r.now, &commits, &r.kind, &r.value, &r.expires, &r.holds, &r.last, &r.kept, &key); err != nil {
			p.t.Fatal(err)
		}
		keys = append(keys, fmt.Sprintf("%s %d %s", key, r.kind, r.value))
	}
	return keys
}

// A today is the store of this version, with errors told to the test.
type today struct {
	t testing.TB
	sweeper
}

func (s today) ok(ok bool, err error) bool {
	s.t.Helper()
	if err != nil {
		s.t.Error(err)
	}
	return ok
}

func (s today) take(key, token string, numbering int) (uint64, bool) {
	s.t.Helper()
	var r backends.Result
	var err error
	switch ctx := s.t.Context(); numbering {
	case byClock:
		r, err = s.SetNXNumbered(ctx, key, token, time.Minute, backends.Turn{})
	case byCount:
		r, err = s.SetNXFenced(ctx, key, token, time.Minute)
	default:
		r, err = s.SetNX(ctx, key, token, time.Minute)
	}
	return r.Fence, s.ok(r.OK, err)
}

func (s today) renew(key, token string) bool {
	s.t.Helper()
	return s.ok(s.ExpireIf(s.t.Context(), key, token, 2*time.Minute))
}

func (s today) release(key, token string) bool {
	s.t.Helper()
	return s.ok(s.DeleteIf(s.t.Context(), key, token))
}

func (s today) enter(key, token string, limit int) backends.Result {
	s.t.Helper()
	r, err := s.Enter(s.t.Context(), key, token, time.Minute, backends.Admission{Group: "g", Limit: limit, Slots: true})
	s.ok(r.OK, err)
	return r
}

func (s today) inspect(key string) backends.State {
	s.t.Helper()
	state, err := s.Inspect(s.t.Context(), key)
	if err != nil {
		s.t.Error(err)
	}
	return state
}

// Each statement that a program of version 1 sends does what it did, with the table of this version. What one
// of the two programs holds, the other one sees and leaves alone, also if it has read the row before. Numbers rise.
func TestTheStatementsOfAnOlderProgramWorkAfterAnInstall(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		for name, made := range map[string]func(t *testing.T, d dialect) database{
			"upgraded": func(t *testing.T, d dialect) database {
				db := older(t, d)
				if err := d.install(t.Context(), db.DB); err != nil {
					t.Fatal(err)
				}
				return db
			},
			"new": func(t *testing.T, d dialect) database { return d.fresh(t) },
		} {
			t.Run(name, func(t *testing.T) { olderProgramWorks(t, made(t, d)) })
		}
	})
}

func olderProgramWorks(t *testing.T, db database) {
	for _, c := range []struct {
		name string
		test func(want func(what string, got bool), key string, p oldProgram, s today)
	}{
		{"insert: the lock of an old program", func(want func(string, bool), k string, p oldProgram, s today) {
			_, ok := p.take(k, "old", unnumbered, nothing)
			want("the old program takes a key that is new", ok)
			for numbering := range 3 {
				_, ok = s.take(k, "new", numbering)
				want(fmt.Sprintf("this one does not take it (%d)", numbering), !ok)
			}
			want("nor does it enter", !errorless(s.Enter(t.Context(), k, "new", time.Minute, backends.Admission{Group: "g", Limit: 1})))
			want("nor does it end or renew it with another token", !s.renew(k, "new") && !s.release(k, "new"))
			want("it sees one hold", s.inspect(k).Holding == 1)
			want("the sweep of this one leaves it", s.Sweep(t.Context()) == nil && p.read(k).has("old"))
		}},
		{"insert: after a race that it has lost", func(want func(string, bool), k string, p oldProgram, s today) {
			_, ok := p.take(k, "old", byClock, func() { s.take(k, "new", byClock) })
			want("the insert changes nothing", !ok && s.renew(k, "new"))
		}},
		{"read: the lock of this program", func(want func(string, bool), k string, p oldProgram, s today) {
			s.take(k, "new", unnumbered)
			want("the old program sees it", p.read(k).kind == 1)
			_, ok := p.take(k, "old", unnumbered, nothing)
			_, entered := p.enter(k, "old", 5, nothing)
			want("and does not take it", !ok && !entered && s.renew(k, "new"))
		}},
		{"swap: the row of another program", func(want func(string, bool), k string, p oldProgram, s today) {
			s.take(k, "new", unnumbered)
			want("a release of this one", s.release(k, "new"))
			_, ok := p.take(k, "old", unnumbered, nothing)
			_, taken := s.take(k, "new", unnumbered)
			want("the old program takes it, and keeps it", ok && !taken && p.extend(k, "old"))
			want("a release of the old one", p.release(k, "old"))
			_, ok = p.take(k, "late", byClock, func() { s.take(k, "new", unnumbered) })
			want("a swap of a row that has changed changes nothing", !ok && s.renew(k, "new"))
		}},
		{"extend and release", func(want func(string, bool), k string, p oldProgram, s today) {
			p.take(k, "old", unnumbered, nothing)
			want("the old program renews its lock", p.extend(k, "old"))
			state := s.inspect(k)
			want("for as long as it asks", state.Holding == 1 && state.Holds[0].Left > time.Minute)
			want("it releases its lock once", p.release(k, "old") && !p.release(k, "old") && !p.extend(k, "old"))
			_, ok := s.take(k, "new", unnumbered)
			want("this one takes it", ok)
			want("the old one does not touch that", !p.extend(k, "old") && !p.release(k, "old") && s.renew(k, "new"))
		}},
		{"numbers by clock", func(want func(string, bool), k string, p oldProgram, s today) {
			last := uint64(0)
			for i := range 6 {
				var n uint64
				if i%2 == 0 {
					n, _ = p.take(k, "old", byClock, nothing)
					p.release(k, "old")
				} else {
					n, _ = s.take(k, "new", byClock)
					s.release(k, "new")
				}
				want(fmt.Sprintf("number %d, %d, is over %d", i, n, last), n > last)
				last = n
			}
		}},
		{"numbers by count, and a number that is raised", func(want func(string, bool), k string, p oldProgram, s today) {
			for i := uint64(1); i < 7; i += 2 {
				n, _ := p.take(k, "old", byCount, nothing)
				p.release(k, "old")
				m, _ := s.take(k, "new", byCount)
				s.release(k, "new")
				want(fmt.Sprintf("the numbers %d and %d", n, m), n == i && m == i+1)
			}
			p.take(k, "old", byCount, nothing)
			want("the old program raises it", p.changeOwn(k, "old", func(r *oldRow) { r.last, r.kept = 1000, math.MaxInt64 }))
			p.release(k, "old")
			n, _ := s.take(k, "new", byCount)
			want("this one goes on from there", n == 1001)
			want("it raises it too", s.ok(s.RaiseFence(t.Context(), k, "new", 2000)))
			s.release(k, "new")
			n, _ = p.take(k, "old", byClock, nothing)
			want("and the old one goes on", n > 2000)
		}},
		{"shared holds", func(want func(string, bool), k string, p oldProgram, s today) {
			slot, ok := p.enter(k, "old", 2, nothing)
			want("the old program enters", ok && slot == 0)
			r := s.enter(k, "new", 1)
			want("this one sees its hold", !r.OK && r.Holds == 1)
			r = s.enter(k, "new", 2)
			want("this one enters beside it", r.OK && r.Holds == 2 && r.Slot == 1)
			_, ok = p.enter(k, "third", 2, nothing)
			_, taken := s.take(k+" ", "new", unnumbered)
			want("then it is full for the old one", !ok && taken)
			want("each renews its own", p.renew(k, "old") && s.ok(s.Renew(t.Context(), k, "new", time.Minute)))
			want("the old one leaves", p.leave(k, "old") && !p.renew(k, "old"))
			state := s.inspect(k)
			want("and the other hold stays as it was", state.Holding == 1 && state.Holds[0].Slot == 1 && s.ok(s.Renew(t.Context(), k, "new", time.Minute)))
			_, ok = p.enter(k, "late", 2, func() { s.enter(k, "third", 2) })
			want("a swap that is late does not let three in", !ok && s.inspect(k).Holding == 2)
			want("this one leaves", s.ok(s.Leave(t.Context(), k, "new")) && s.ok(s.Leave(t.Context(), k, "third")))
			slot, ok = p.enter(k, "old", 1, nothing)
			want("the old one enters again", ok && slot == 0)
		}},
		{"transfer", func(want func(string, bool), k string, p oldProgram, s today) {
			p.take(k, "old", unnumbered, nothing)
			want("the old program transfers it", p.changeOwn(k, "old", func(r *oldRow) { r.value = []byte("new") }))
			want("this one has it, and the old one does not", s.renew(k, "new") && !p.extend(k, "old"))
			r, err := s.Transfer(t.Context(), k, "new", "old", time.Minute, false)
			want("and back", s.ok(r.OK, err) && p.extend(k, "old") && !s.renew(k, "new"))
		}},
		{"eviction", func(want func(string, bool), k string, p oldProgram, s today) {
			p.take(k, "old", unnumbered, nothing)
			evict := func(e backends.Eviction) bool {
				e.Foreign = true // no token of a Client
				state := s.inspect(k)
				return len(state.Holds) == 1 && s.ok(s.Evict(t.Context(), k, state.Holds[0].Print, e))
			}
			want("this program evicts the old one", evict(backends.Eviction{By: "operator"}) && !p.extend(k, "old") && !p.release(k, "old"))
			_, ok := p.take(k, "another", unnumbered, nothing)
			want("the key is closed for the old one", !ok)
			want("and opened", evict(backends.Eviction{Now: true}))
			_, ok = p.take(k, "another", unnumbered, nothing)
			want("the old one takes it", ok)
		}},
		{"guard", func(want func(string, bool), k string, p oldProgram, s today) {
			p.take(k, "old", unnumbered, nothing)
			tx, err := p.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			r := p.scan(tx.QueryRowContext(t.Context(), p.statements["guard"], []byte(k)))
			want("the old program guards its lock", r.has("old"))
			ended := make(chan error, 1)
			go func() {
				_, err := s.Evict(t.Context(), k, backends.PrintOf("old"), backends.Eviction{Now: true, Foreign: true})
				ended <- err
			}()
			want("an eviction by this one does not change it meanwhile", expire(t, db, k) != nil && p.read(k).has("old"))
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			want("it does so afterwards", <-ended == nil && !p.read(k).held())
		}},
		{"list", func(want func(string, bool), k string, p oldProgram, s today) {
			s.take(k, "new", unnumbered)
			want("the old program lists what this one holds", slices.Contains(p.list(), k+" 1 new"))
			p.take(k+"!", "old", unnumbered, nothing)
			page, err := s.List(t.Context(), k+"!", "", 10)
			want("and this one what the old one holds", err == nil && len(page.Keys) == 1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newOldProgram(t, db)
			c.test(func(what string, got bool) {
				t.Helper()
				if !got {
					t.Errorf("not so: %s", what)
				}
			}, t.Name(), p, today{t, db.store().(sweeper)})
		})
	}
	t.Run("sweep", func(t *testing.T) { olderProgramSweeps(t, db) })
	t.Run("schema", func(t *testing.T) {
		text, err := os.ReadFile("../testdata/version1." + db.dialect.driver + ".sql")
		if err != nil {
			t.Fatal(err)
		}
		outside{t, db}.exec(string(text)) // the old program installs again
		if r := check(t, db); r.Err(sqlstore.ProblemPersistence) != nil || strings.Contains(r.String(), string(sqlstore.ProblemInstall)) {
			t.Errorf("Check = %v; want nothing changed", r)
		}
	})
}

func errorless(r backends.Result, err error) bool { return err == nil && r.OK }

// Both programs remove what nobody needs, whichever has made it, and nothing else.
func olderProgramSweeps(t *testing.T, db database) {
	p, s, o := newOldProgram(t, db), today{t, db.store().(sweeper)}, outside{t, db}
	o.exec("DELETE FROM lockstep_lock")
	needed := func() {
		t.Helper()
		s.take("held by this one", "new", unnumbered)
		p.take("held by the old one", "old", unnumbered, nothing)
		for key, numbering := range map[string]int{"number of this one": byClock, "count of this one": byCount} {
			s.take(key, "new", numbering)
			s.release(key, "new")
		}
		for key, numbering := range map[string]int{"number of the old one": byClock, "count of the old one": byCount} {
			p.take(key, "old", numbering, nothing)
			p.release(key, "old")
		}
	}
	unneeded := func() { // nothing inserts behind it: that would sweep, too
		t.Helper()
		s.take("left by this one", "new", unnumbered)
		p.take("left by the old one", "old", unnumbered, nothing)
		o.exec("UPDATE lockstep_lock SET expires = expires - 7200000000, look = 0 WHERE `key` IN (?, ?)",
			[]byte("left by this one"), []byte("left by the old one"))
	}
	needed()
	unneeded()
	if got := strings.Join(p.sweep(), ", "); got != "left by the old one, left by this one" {
		t.Errorf("the old program removes %s", got)
	}
	if got := p.sweep(); len(got) > 0 {
		t.Errorf("the old program then removes %q", got)
	}
	o.exec("DELETE FROM lockstep_lock")
	needed()
	unneeded()
	if err := s.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if got := p.list(); len(got) != 6 || strings.Contains(fmt.Sprint(got), "left") {
		t.Errorf("this program leaves %q", got)
	}
}

// Programs of both versions want one key at the same time: one at most has it, and its number is the greatest.
func TestProgramsOfTwoVersionsExcludeEachOther(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		db := older(t, d)
		if err := d.install(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
		var inside atomic.Int32
		var last uint64 // the lock is its guard
		var ended = make(chan error)
		const programs, grants = 3, 10
		run := func(token string, take func(key, token string) (uint64, bool), release func(key, token string) bool) {
			ended <- func() error {
				for range grants {
					n, ok := take("k", token)
					for ; !ok; n, ok = take("k", token) {
						if t.Failed() || t.Context().Err() != nil {
							return context.Canceled
						}
						time.Sleep(time.Millisecond) // it polls
					}
					if inside.Add(1) != 1 {
						return fmt.Errorf("%s is inside with another", token)
					}
					if n <= last {
						return fmt.Errorf("the number of %s is %d, after %d", token, n, last)
					}
					last = n
					inside.Add(-1)
					if !release("k", token) {
						return fmt.Errorf("%s had the lock no longer", token)
					}
				}
				return nil
			}()
		}
		for i := range programs {
			p, s := newOldProgram(t, db), today{t, db.store().(sweeper)}
			go run(fmt.Sprint("old ", i), func(key, token string) (uint64, bool) { return p.take(key, token, byClock, nothing) }, p.release)
			go run(fmt.Sprint("new ", i), func(key, token string) (uint64, bool) { return s.take(key, token, byClock) }, s.release)
		}
		for range 2 * programs {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}
