//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package command

import "golang.org/x/sys/unix"

const clockID = unix.CLOCK_MONOTONIC
