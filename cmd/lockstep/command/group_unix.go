//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package command

// working tells whether a process of a group is no zombie, as far as it is known here.
func working(group int) bool { return strangers(group) }

// onlyZombies is not known here.
func onlyZombies(int) bool { return false }

// adopt does nothing: these systems leave orphans to process 1.
func adopt() (stop func()) { return func() {} }
