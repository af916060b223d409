// Package stack starts goroutines that call a client library and pass its answer to a function.
package stack

// Go calls call on a new goroutine and passes its results to then. If call ends the goroutine, the
// error is gone.
func Go[R any](call func() (R, error), gone error, then func(R, error)) {
	go func() {
		var r R
		err := gone
		defer func() { then(r, err) }()
		Grow()
		r, err = call()
	}()
}

// Grow grows the stack of a new goroutine to 16 KB, which a call over go-redis needs. One step is
// cheap while the stack is empty; a step from the depths of a client library costs more than all the rest of
// the call: see bench/regress/mechanisms.md. The size of the frame does it: nothing is written there.
//
//go:noinline
func Grow() {
	if never {
		var room [12 << 10]byte
		fill(&room)
	}
}

var never bool // the compiler does not know

//go:noinline
func fill(room *[12 << 10]byte) { room[0] = 1 }
