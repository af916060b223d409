//go:build !plan9

package locker

import "syscall"

// What systems call a connection that failed. Windows has numbers of its own, which package syscall
// does not map.
var (
	refusedConnection = []error{syscall.ECONNREFUSED, syscall.Errno(10061)}
	resetConnection   = []error{syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED, syscall.Errno(10053), syscall.Errno(10054)}
)
