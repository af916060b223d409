// Package stack makes goroutines that call a client library and give its answer to a function.
package stack

// Go gives then what call returns, on a goroutine of its own; gone, if call ends that goroutine.
func Go[R any](call func() (R, error), gone error, then func(R, error)) {
	go func() {
		var r R
		err := gone
		defer func() { then(r, err) }()
		Grow()
		r, err = call()
	}()
}

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
