package main

import (
	"os"
	"testing"

	"github.com/lockstep-go/lockstep/internal/verify/laboratory"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	"github.com/redis/go-redis/v9/logging"
)

// The test binary is the program of the owners as well.
func TestMain(m *testing.M) {
	if laboratory.IsOwner() {
		main()
		return
	}
	logging.Disable()
	os.Exit(redistest.Main(m))
}
