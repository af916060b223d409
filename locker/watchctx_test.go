package locker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

func TestTheCtxOfAWatchBehavesLikeOneOfPackageContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &watchContext{}
		if _, ends := c.Deadline(); ends || c.Err() != nil || c.Value("key") != nil {
			t.Errorf("at first: ends %v, error %v, value %v", ends, c.Err(), c.Value("key"))
		}
		var mu sync.Mutex
		var called []string
		call := func(name string) func() {
			return func() {
				mu.Lock()
				defer mu.Unlock()
				called = append(called, name)
			}
		}
		early := c.Done()
		context.AfterFunc(c, call("by the package"))
		stop := c.AfterFunc(call("stopped"))
		c.AfterFunc(call("by itself"))
		if !stop() || stop() {
			t.Error("stop must return true the first time, and false then")
		}
		child, cancel := context.WithCancel(c)
		defer cancel()
		synctest.Wait()
		if len(called) > 0 || child.Err() != nil {
			t.Errorf("before the end: called %v, child %v", called, child.Err())
		}
		c.cancel()
		c.cancel()
		synctest.Wait()
		if len(called) != 2 || c.Err() == nil || !errors.Is(child.Err(), context.Canceled) {
			t.Errorf("after the end: called %v, error %v, child %v", called, c.Err(), child.Err())
		}
		<-early
		<-c.Done()
		<-child.Done()
		if stop := c.AfterFunc(call("late")); stop() {
			t.Error("stop returned true for a func that was called at once")
		}
		synctest.Wait()
		if len(called) != 3 {
			t.Errorf("after the end: called %v", called)
		}
		over := &watchContext{}
		over.cancel()
		<-over.Done()
	})
}

// Many attempts share one ctx for seconds, and each may ask to be called at its end.
func TestACtxKeepsNothingOfTheCallsThatWereStopped(t *testing.T) {
	c := &watchContext{}
	defer c.AfterFunc(func() {})()
	for range 1000 {
		first, second := c.AfterFunc(func() {}), c.AfterFunc(func() {})
		if !first() || !second() {
			t.Fatal("stop returned false before the end")
		}
	}
	if len(c.calls) != 1 || cap(c.calls) > 8 {
		t.Errorf("%d calls are left of 1, in %d places", len(c.calls), cap(c.calls))
	}
}
