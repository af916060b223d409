package etcd_test

import (
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/internal/verify/etcdtest"
	"github.com/lockstep-go/lockstep/internal/verify/silent"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestAConnectionThatFallsSilentEndsNoLock(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	silent.Run(t, strings.TrimPrefix(server.Endpoints()[0], "http://"), func(t *testing.T, addr string) locker.Locker {
		return single.New(etcd.New(dial(t, []string{"http://" + addr})))
	})
}
