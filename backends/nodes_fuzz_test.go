package backends_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/lockstep-go/lockstep/backends"
)

// FuzzCheckNodes: nodes pass if and only if all have answered, are distinct, and follow nobody;
// otherwise the error names each that is none, and only those.
func FuzzCheckNodes(f *testing.F) {
	f.Add([]byte{0, 1, 2})
	f.Add([]byte{0, 0, 0x11, 0x21, 0xff, 0x30})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, kinds []byte) {
		kinds = kinds[:min(len(kinds), 12)]
		down := errors.New("down")
		var all []backends.Identifier
		first := map[string]int{}
		var same [][2]int
		var followers, failed []int
		for i, k := range kinds {
			n := node{server: fmt.Sprint("server", k&7), role: []string{"master", "", "slave", "replica"}[k>>4&3]}
			if k >= 0xc0 {
				n.err = down
			}
			all = append(all, n)
			if n.err != nil {
				failed = append(failed, i)
				continue
			}
			if other, twice := first[n.server]; twice {
				same = append(same, [2]int{other, i})
			} else {
				first[n.server] = i
			}
			if n.role != "master" && n.role != "" {
				followers = append(followers, i)
			}
		}
		got := check(all...)
		if len(same)+len(followers)+len(failed) == 0 {
			if got != nil {
				t.Errorf("%x: %v", kinds, got)
			}
			return
		}
		if got == nil || fmt.Sprint(got.Same, got.Followers) != fmt.Sprint(same, followers) || len(got.Unreachable) != len(failed) {
			t.Fatalf("%x: %+v; want %v, %v, %v", kinds, got, same, followers, failed)
		}
		for _, i := range failed {
			if got.Unreachable[i] != down {
				t.Errorf("%x: node %d failed with %v", kinds, i+1, got.Unreachable[i])
			}
		}
		if errors.Is(got, down) != (len(failed) > 0) {
			t.Errorf("%x: %v", kinds, got)
		}
	})
}
