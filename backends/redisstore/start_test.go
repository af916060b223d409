package redisstore

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/pipeline"
	"github.com/lockstep-go/lockstep/internal/starting"
)

// A quorum finds the calls by this.
var _ starting.Store = (*Store)(nil)

// says is an executor that answers by a function.
type says struct {
	driver.Executor
	once func(args []any) (any, error)
}

func (s says) Once(_ context.Context, args ...any) (any, error) { return s.once(args) }

// saysAll is one that is a Pipeliner, perhaps of a cluster.
type saysAll struct {
	says
	lane    func() any
	cluster bool
}

func (s saysAll) OnceAll(_ context.Context, commands []*driver.Command) {
	for _, c := range commands {
		c.Reply, c.Err = s.once(c.Args)
	}
}

func (s saysAll) DoAll(ctx context.Context, commands []*driver.Command) { s.OnceAll(ctx, commands) }
func (s saysAll) Lane(context.Context, []any) any                       { return s.lane() }
func (s saysAll) Clustered() bool                                       { return s.cluster }

func TestAClusterThatCannotTellItsServersYetKeepsNobodyWaitingWhoStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := map[any]any{"SET": "OK", "EVALSHA": int64(1)}
		exec := says{once: func(args []any) (any, error) { return answer[args[0]], nil }}
		s := New(saysAll{says: exec, cluster: true, lane: func() any { time.Sleep(time.Hour); return nil }})
		var answered atomic.Int32
		began := time.Now()
		s.StartSetNX(t.Context(), "k", "t", time.Second, func(r backends.Result, err error) {
			if !r.OK || err != nil {
				t.Errorf("%v, %v", r, err)
			}
			answered.Add(1)
		})
		if time.Since(began) != 0 {
			t.Error("SetNX has waited")
		}
		time.Sleep(2 * time.Hour)
		began = time.Now()
		s.StartDeleteIf(t.Context(), "k", "t", func(ok bool, err error) {
			if !ok || err != nil {
				t.Errorf("%v, %v", ok, err)
			}
			answered.Add(1)
		})
		if time.Since(began) != 0 {
			t.Error("DeleteIf has waited")
		}
		time.Sleep(2 * time.Hour)
		if n := answered.Load(); n != 2 {
			t.Errorf("%d answers", n)
		}
	})
}

func TestWhatWasStartedIsAnsweredWhereverTheLibraryEndsTheGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := func(on string) says {
			return says{once: func(args []any) (any, error) {
				if args[0] == on {
					runtime.Goexit()
				}
				if args[0] == "EVALSHA" {
					return nil, &driver.ReplyError{Text: "NOSCRIPT it is new"}
				}
				return nil, nil
			}}
		}
		one := func() any { return nil }
		for name, exec := range map[string]driver.Executor{
			"by itself":            ends("SET"),
			"together":             saysAll{says: ends("SET"), lane: one},
			"the script after SET": saysAll{says: ends("EVAL"), lane: one},
		} {
			var got error
			New(exec).StartSetNX(t.Context(), "k", "t", time.Second, func(_ backends.Result, err error) { got = err })
			synctest.Wait()
			if !errors.Is(got, pipeline.ErrStranded) {
				t.Errorf("SetNX, %s: %v", name, got)
			}
		}
		for name, exec := range map[string]driver.Executor{
			"by itself":        ends("EVALSHA"),
			"together":         saysAll{says: ends("EVALSHA"), lane: one},
			"the whole script": saysAll{says: ends("EVAL"), lane: one},
		} {
			var got error
			New(exec).StartDeleteIf(t.Context(), "k", "t", func(_ bool, err error) { got = err })
			synctest.Wait()
			if !errors.Is(got, pipeline.ErrStranded) {
				t.Errorf("DeleteIf, %s: %v", name, got)
			}
		}
	})
}

func TestAClusterIsNotOneServer(t *testing.T) {
	for _, cluster := range []bool{false, true} {
		if s := New(saysAll{says: says{}, cluster: cluster}); s.OneServer() == cluster {
			t.Errorf("of a cluster %v: OneServer = %v", cluster, s.OneServer())
		}
	}
}
