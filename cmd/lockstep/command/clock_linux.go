package command

import "golang.org/x/sys/unix"

const clockID = unix.CLOCK_BOOTTIME // unlike the monotonic clock, it goes on while the machine is suspended
