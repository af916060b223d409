package rueidis_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidis"
	"github.com/lockstep-go/lockstep/internal/verify/wiretest"
)

func openPlain(t *testing.T, addr string, opts ...redisstore.Option) *redisstore.Store {
	return rueidis.New(dial(t, addr), append(opts, redisstore.WithMaxTTL(time.Hour))...)
}

func TestLocksOutliveASwitchoverThatKeepsTheConnections(t *testing.T) {
	t.Parallel()
	wiretest.Switchover(t, openPlain, 20)
}

func TestEachErrorReplyToEachCommandIsOfTheRightClass(t *testing.T) {
	t.Parallel()
	wiretest.ErrorReplies(t, openPlain)
}

func TestErrorsSayWhichServerWhatOutcomeAndWhatToDo(t *testing.T) {
	t.Parallel()
	wiretest.Messages(t, func(t *testing.T, to wiretest.Server, opts ...redisstore.Option) (*redisstore.Store, func()) {
		o := options(to.Addr)
		o.TLSConfig, o.ConnWriteTimeout, o.Dialer.Timeout = to.Encrypt, to.Timeout, to.Timeout
		o.Dialer.KeepAlive = to.Timeout
		o.Password, o.SelectDB = to.Password, to.Database
		store, c := open(t, o, opts...)
		return store, c.Close
	}, false)
}

func TestAURLIsNoAddress(t *testing.T) {
	_, _, err := rueidis.Open(options("redis://:S3CRET@localhost:6379"))
	want := "lockstep: InitAddress: address redis://:xxxxx@localhost:6379 is a URL, and host:port is needed: use rueidis.ParseURL (redis/rueidis)"
	if err == nil || err.Error() != want {
		t.Errorf("Open = %v", err)
	}
}
