//go:build unix

package laboratory

import "syscall"

// freeze stops the process where it is, as a full disk or a hypervisor does; thaw lets it go on.
func (o *owner) freeze() error { return o.cmd.Process.Signal(syscall.SIGSTOP) }
func (o *owner) thaw() error   { return o.cmd.Process.Signal(syscall.SIGCONT) }
