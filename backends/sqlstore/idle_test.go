package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"
)

// silentDriver opens connections of which some fall silent.
type silentDriver struct {
	mu     sync.Mutex
	opened []*silentConn
	pings  int
}

type silentConn struct {
	of     *silentDriver
	silent bool
	deaf   chan struct{} // a ping does not end with its ctx, but when this is closed; nil: it does
}

func (d *silentDriver) Connect(context.Context) (driver.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &silentConn{of: d}
	d.opened = append(d.opened, c)
	return c, nil
}

func (d *silentDriver) Driver() driver.Driver { return nil }

// fall makes the connections silent that are open.
func (d *silentDriver) fall(all []*silentConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range all {
		c.silent = true
	}
}

func (d *silentDriver) counts() (opened, pings int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.opened), d.pings
}

func (*silentConn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (*silentConn) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }
func (*silentConn) Close() error                        { return nil }

func (c *silentConn) Ping(ctx context.Context) error {
	c.of.mu.Lock()
	c.of.pings++
	silent, deaf := c.silent, c.deaf
	c.of.mu.Unlock()
	if silent && deaf != nil {
		<-deaf
		return nil
	}
	if silent {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// withPool runs a test in fake time on a pool with so many idle connections, which no store has used.
func withPool(t *testing.T, idle int, test func(t *testing.T, d *silentDriver, p databasePool)) {
	synctest.Test(t, func(t *testing.T) {
		d := new(silentDriver)
		db := sql.OpenDB(d)
		defer func() { _ = db.Close() }()
		db.SetMaxIdleConns(100)
		var all []*sql.Conn
		for range idle {
			c, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		for _, c := range all {
			_ = c.Close()
		}
		test(t, d, databasePool{db, new(place), new(seen)})
	})
}

// use takes a connection and gives it back.
func (p databasePool) use(t *testing.T) {
	t.Helper()
	c, err := p.acquire(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	_ = c.Raw(func(is any) error {
		if is.(*silentConn).silent {
			t.Error("the connection is silent")
		}
		return nil
	})
	c.Close()
}

func TestAConnectionIsTestedIfTheStoreHasNotUsedItForFiveSeconds(t *testing.T) {
	withPool(t, 1, func(t *testing.T, d *silentDriver, p databasePool) {
		for i, step := range []struct {
			after time.Duration
			pings int
		}{{0, 1}, {0, 1}, {4 * time.Second, 1}, {4 * time.Second, 1}, {5 * time.Second, 2}, {4 * time.Second, 2}} {
			time.Sleep(step.after)
			p.use(t)
			if opened, pings := d.counts(); pings != step.pings || opened != 1 {
				t.Errorf("use %d, after %v: %d tests of %d connections; want %d of 1", i, step.after, pings, opened, step.pings)
			}
		}
	})
	withPool(t, 0, func(t *testing.T, d *silentDriver, p databasePool) {
		p.use(t)
		if _, pings := d.counts(); pings > 0 {
			t.Error("a new connection was tested")
		}
	})
}

func TestAPoolOfSilentConnectionsCostsTwoSeconds(t *testing.T) {
	const idle = 20
	for name, living := range map[string]int{"all are silent": 0, "the one used longest ago lives": 1} {
		t.Run(name, func(t *testing.T) {
			withPool(t, idle, func(t *testing.T, d *silentDriver, p databasePool) {
				d.fall(d.opened[living:])
				began := time.Now()
				p.use(t)
				if took := time.Since(began); took > 2*testLimit {
					t.Errorf("it took %v", took)
				}
				synctest.Wait() // what was silent is dropped behind the call
				opened, pings := d.counts()
				if opened != idle+1-living || pings != idle || p.db.Stats().OpenConnections != 1 {
					t.Errorf("%d were tested, %d opened, and %d are left; want each tested once, and one left", pings, opened, p.db.Stats().OpenConnections)
				}
			})
		})
	}
	t.Run("for many calls at once", func(t *testing.T) {
		withPool(t, idle, func(t *testing.T, d *silentDriver, p databasePool) {
			d.fall(d.opened)
			began := time.Now()
			var all sync.WaitGroup
			for range 2 * idle {
				all.Go(func() { p.use(t) })
			}
			all.Wait()
			if took := time.Since(began); took > 3*testLimit {
				t.Errorf("it took %v", took)
			}
			if opened, _ := d.counts(); opened > 3*idle {
				t.Errorf("%d connections were opened for %d calls", opened-idle, 2*idle)
			}
		})
	})
}

// A call whose ctx ends soon leaves no connection behind, and says so.
func TestATestEndsWithItsCall(t *testing.T) {
	withPool(t, 3, func(t *testing.T, d *silentDriver, p databasePool) {
		d.fall(d.opened)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if c, err := p.acquire(ctx); !errors.Is(err, context.DeadlineExceeded) || c != nil {
			t.Errorf("acquire = %v, %v; want the end of ctx", c, err)
		}
		synctest.Wait()
		if n := p.db.Stats().InUse; n != 0 {
			t.Errorf("%d connections are still in use", n)
		}
	})
}

// A ping of lib/pq does not end with its ctx.
func TestATestThatDoesNotEndHoldsUpNoCall(t *testing.T) {
	const idle = 5
	withPool(t, idle, func(t *testing.T, d *silentDriver, p databasePool) {
		returns := make(chan struct{})
		for _, c := range d.opened {
			c.deaf = returns
		}
		d.fall(d.opened)
		began := time.Now()
		var all sync.WaitGroup
		for range 2 * idle {
			all.Go(func() { p.use(t) })
		}
		all.Wait()
		if took := time.Since(began); took > 3*testLimit {
			t.Errorf("it took %v", took)
		}
		if !p.seen.testing.TryLock() {
			t.Fatal("the next call can't test those that are idle")
		}
		p.seen.testing.Unlock()
		if n := p.db.Stats().InUse; n != idle {
			t.Errorf("%d connections are in use; want those %d whose test goes on", n, idle)
		}
		close(returns)
		synctest.Wait() // and no goroutine may be left when the test ends
		if stats := p.db.Stats(); stats.InUse != 0 || stats.OpenConnections > 2*idle {
			t.Errorf("when the tests have ended: %+v; want the pool to have dropped what was silent", stats)
		}
		p.use(t)
	})
}

func TestWhatAStoreHasSeenDoesNotGrow(t *testing.T) {
	withPool(t, 0, func(t *testing.T, _ *silentDriver, p databasePool) {
		p.db.SetMaxIdleConns(-1) // each use opens one
		for range 100 {
			p.use(t)
			time.Sleep(time.Second)
		}
		if n := len(p.seen.at); n > 11 {
			t.Errorf("%d connections are remembered", n)
		}
	})
}

func TestAStoreKeepsNoClosedConnectionAlive(t *testing.T) {
	d := new(silentDriver)
	db := sql.OpenDB(d)
	p := databasePool{db, new(place), new(seen)}
	p.use(t)
	closed := weak.Make(d.opened[0])
	d.opened = nil
	_ = db.Close()
	for range 10 {
		runtime.GC()
		if closed.Value() == nil {
			break
		}
	}
	if closed.Value() != nil {
		t.Error("the connection is still in memory")
	}
	runtime.KeepAlive(p)
}
