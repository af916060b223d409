package etcd_test

import (
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/internal/verify/etcdtest"
	"github.com/lockstep-go/lockstep/internal/verify/silent"
)

func TestAConnectionThatFallsSilentEndsNoLock(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	silent.Run(t, strings.TrimPrefix(server.Endpoints()[0], "http://"), silent.Late, func(t *testing.T, addr string) *etcd.Store {
		return etcd.New(dial(t, []string{"http://" + addr}))
	}, (*etcd.Store).Check)
}
