//go:build unix

package command

import "syscall"

const terminate = syscall.SIGTERM
