package rueidisstore_test

import (
	"os"
	"testing"

	"github.com/lockstep-go/lockstep/proof/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
