//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package command

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopped says why a signal has stopped a command that does not have the terminal.
func stopped(by syscall.Signal) string {
	switch by {
	case syscall.SIGTTIN:
		return "it reads the terminal, which it does not have: give it other input, such as </dev/null"
	case syscall.SIGTTOU:
		return "it writes to the terminal, which it does not have"
	}
	return fmt.Sprintf("signal %d", by)
}

// suspend stops this process too, so that the shell gets its terminal back. Nothing is renewed
// meanwhile: the guard ends a command that stays stopped until the end of the lease.
func (s *supervisor) suspend() {
	if s.foreground {
		s.takeTerminal(s.child.group)
	}
	if session := sessionOf(0); sessionOf(os.Getppid()) != session || unix.Getpgrp() == session {
		s.resume() // no shell would ever continue us
		return
	}
	pid := os.Getpid()
	if s.foreground {
		pid = 0 // Ctrl-Z did not reach our group: a script that waits for us stops too, or its shell gets no prompt
	}
	// Not TSTP: Go does not give it its default action back after Notify.
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	// STOP stops us now or in a moment, and CONT ends that. Process 1 of a container is never
	// stopped.
	for timeout := time.After(time.Second); ; {
		select {
		case sig := <-s.signals:
			switch sig {
			case syscall.SIGTSTP: // the child has it, or will get it again
			case syscall.SIGCONT:
				s.resume()
				return
			default:
				s.pass(sig)
			}
		case <-timeout:
			s.resume()
			return
		}
	}
}

func sessionOf(pid int) int {
	session, err := unix.Getsid(pid)
	if err != nil {
		return -1
	}
	return session
}

func (s *supervisor) resume() {
	if s.foreground && terminalGroup() == unix.Getpgrp() {
		s.giveTerminal(s.child.group)
	}
	_ = s.send(syscall.SIGCONT)
}

// takeTerminal takes the terminal back from the group of the command. Another job may have it by now.
func (s *supervisor) takeTerminal(group int) {
	if has := terminalGroup(); has == group || has > 1 && !groupLives(has) {
		s.giveTerminal(unix.Getpgrp())
	}
}

// giveTerminal makes a group the foreground of the terminal. SIGTTOU must be ignored.
func (s *supervisor) giveTerminal(group int) {
	if err := unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, group); err != nil {
		s.say("the terminal can't be passed on: %v", err)
	}
}

// terminalGroup is the group in the foreground of the terminal; -1: there is no terminal.
func terminalGroup() int {
	group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return group
}
