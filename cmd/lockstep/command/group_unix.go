//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package command

// working tells whether a process of a group is no zombie, as far as it is known here.
func working(group int) bool { return strangers(group) }
