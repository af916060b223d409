package sample_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/proof/beneath"
)

func TestContract(t *testing.T) { beneath.Contract(t, "sample") }
