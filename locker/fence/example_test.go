package fence_test

import (
	"errors"
	"fmt"

	"github.com/lockstep-go/lockstep/locker/fence"
)

// The numbers are those of two grants, from Lock.Fence. The first holder was paused until the second one had the lock.
func ExampleRegister() {
	var report fence.Register[string]
	fmt.Println(report.Write(2, "of the second holder"))

	err := report.Write(1, "of the first holder, late")
	fmt.Println(errors.Is(err, fence.ErrLate), err)

	value, _ := report.Read()
	fmt.Println(value)
	// Output:
	// <nil>
	// true fence 1 came after 2: fence is lower than one that was accepted before
	// of the second holder
}
