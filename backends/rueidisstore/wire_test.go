package rueidisstore_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/rueidisstore"
)

func TestAURLIsNoAddress(t *testing.T) {
	_, _, err := rueidisstore.Open(options("redis://:S3CRET@localhost:6379"))
	want := "lockstep: InitAddress: address redis://:xxxxx@localhost:6379 is a URL, and host:port is needed: use rueidis.ParseURL (redis/rueidis)"
	if err == nil || err.Error() != want {
		t.Errorf("Open = %v", err)
	}
}
