package locker

import (
	"testing"
	"unsafe"
)

// A process may hold 100,000 locks. The runtime gives memory in sizes of 448 and 480 bytes, among
// others.
func TestAHoldFitsIn448Bytes(t *testing.T) {
	if size := unsafe.Sizeof(hold{}); size > 448 {
		t.Errorf("a hold has %d bytes", size)
	}
}
