// Package stack prepares the stack of a goroutine that will call a client library.
package stack

// Grow grows the stack of a new goroutine in one step, while there is nothing on it to copy, to what a client library needs.
// Growing by and by costs more than the goroutine itself. It is the size of the frame that does it: nothing is written there.
//
//go:noinline
func Grow() {
	if never {
		var room [6 << 10]byte
		fill(&room)
	}
}

var never bool // the compiler does not know

//go:noinline
func fill(room *[6 << 10]byte) { room[0] = 1 }
