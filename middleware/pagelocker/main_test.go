package pagelocker_test

import (
	"os"
	"testing"

	"github.com/lockstep-go/lockstep/internal/verify/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
