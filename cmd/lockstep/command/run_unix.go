//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package command

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

const canRun = true

// The signals that are passed on.
var passed = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
	syscall.SIGTSTP, syscall.SIGCONT,
}

// under waits for the lock and runs the command.
func (r *running) under(ctx context.Context, locks *locker.Client, strategy, path string) error {
	survivePipe()
	defer adopt()()
	signals := make(chan os.Signal, 16)
	notify(signals, passed)
	// The context of the lock descends from it, so it is not cancelled before the end of the hold.
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	l, interrupted, err := r.acquire(waiting, cancel, locks, signals)
	if interrupted != 0 {
		if l != nil {
			r.undo(l)
		}
		return &exitError{code: exitSignal + int(interrupted)}
	}
	if err != nil {
		return r.refused(err)
	}
	began := time.Now()
	r.detail("%s: granted by %s to %s, number %d", r.name, strategy, r.holder, l.Fence())

	s := &supervisor{running: r, lock: l, signals: signals}
	code, err := s.run(path)
	var own *exitError
	if errors.As(err, &own) && s.child == nil { // nothing ran
		r.undo(l)
		return err
	}
	exit := code
	if s.reason != "" {
		exit = s.exit
	}
	if failed := unlock(l); errors.Is(failed, locker.ErrLost) && s.exit == 0 {
		s.reason, s.exit, exit = failed.Error(), exitLost, exitLost
		r.say("%s: %v", r.name, failed)
	} else if failed != nil && !errors.Is(failed, locker.ErrLost) {
		r.say("%s: the release was not confirmed, the lease ends by itself: %v", r.name, failed)
	} else if failed == nil && r.atLeast > 0 {
		defer r.keep(l, signals)
	}
	if r.json {
		lost := ""
		if s.exit == exitLost {
			lost = s.reason
		}
		_ = r.print(r.err, ended{
			Key: r.name, Fence: l.Fence(), Holder: r.holder, Child: code, Exit: exit, Lost: lost, HeldMS: time.Since(began).Milliseconds(),
		})
	}
	if exit != 0 {
		return &exitError{code: exit}
	}
	return nil
}

// acquire waits for the lock until INT, TERM or HUP, and returns that signal.
func (r *running) acquire(
	ctx context.Context, cancel context.CancelFunc, locks *locker.Client, signals <-chan os.Signal,
) (*locker.Lock, syscall.Signal, error) {
	type answer struct {
		lock *locker.Lock
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		l, err := r.lock(ctx, locks)
		answered <- answer{l, err}
	}()
	var got syscall.Signal
	for {
		select {
		case a := <-answered:
			return a.lock, got, a.err
		case s := <-signals:
			switch s {
			case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP:
				got, _ = s.(syscall.Signal)
				cancel()
			case syscall.SIGTSTP:
				_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // it waits only: an attempt that is granted meanwhile ends with its lease
			}
		}
	}
}

// supervisor runs the command while the lock is held.
type supervisor struct {
	*running
	lock    *locker.Lock
	signals chan os.Signal

	child      *child
	guard      *guardPipe
	next       chan replacement // of the guard; nil: none is being started
	foreground bool
	halted     bool // the command is stopped, and this process is not

	exit   int       // other than that of the command
	reason string    // why
	kill   time.Time // when KILL follows TERM; zero: there was no TERM
	killed bool
	gone   time.Time // when the leader had ended and the group got TERM
	others bool      // processes are left that can't be ended
	code   int
	last   time.Time // of the last INT or TERM
	ending syscall.Signal
}

// left is how long the command may still run, by the clock that says less. A busy machine is late:
// so the command ends a twentieth of the TTL before the lease, half a second at most.
func (s *supervisor) left() time.Duration {
	end := s.lock.Lease().Expires.Add(-min(s.ttl/20, 500*time.Millisecond))
	return min(time.Until(end), end.Round(0).Sub(time.Now().Round(0)))
}

// until is when the guard kills the group, by its clock.
func (s *supervisor) until() int64 {
	at := now() // first: a pause in between makes the end earlier, not later
	return at + int64(s.left())
}

func (s *supervisor) run(path string) (code int, err error) {
	s.foreground = isForeground()
	c, err := newChild(path, s.argv, s.environment(s.lock), s.foreground)
	if err != nil {
		return 0, &exitError{exitCannotRun, err}
	}
	signal.Ignore(syscall.SIGTTOU) // the terminal comes back to us while we are in the background
	if s.foreground {
		defer s.takeTerminal(c.group)
	}
	closeFilesOnExec() // the command has those of the caller, and a guard would keep them open
	changes := c.watch()
	s.detailEnd(s.lock.Lease().Expires)
	if !s.keepGoing {
		if s.guard, err = startGuard(c.group, s.until(), s.grace, s.name, startLimit); err != nil {
			_ = c.begin.Close()
			<-changes
			return 0, &exitError{exitCannotRun, err}
		}
		defer s.dismiss()
	}
	if err := c.start(); err != nil {
		<-changes
		if errors.Is(err, syscall.ENOENT) {
			return 0, &exitError{exitNotFound, &os.PathError{Op: "exec", Path: path, Err: err}}
		}
		return 0, &exitError{exitCannotRun, &os.PathError{Op: "exec", Path: path, Err: err}}
	}
	s.child = c
	s.watch(changes)
	return s.code, nil
}

// dismiss ends the guard. If the guard has ended the command, this process was stopped for too long.
func (s *supervisor) dismiss() {
	if s.next != nil {
		s.use(<-s.next)
	}
	s.guard.dismiss()
	if s.exit != 0 || s.child == nil {
		return
	}
	select {
	case <-s.guard.warned:
	default:
		if !s.guard.acted {
			return
		}
	}
	s.exit, s.reason = exitLost, tooLong
	s.say("%s: %s, and its guard has ended the command", s.name, s.reason)
}

const tooLong = "lockstep was stopped for too long"

// watch returns when no process of the group is left.
func (s *supervisor) watch(changes <-chan status) {
	var over <-chan time.Time
	if s.max > 0 {
		over = time.After(s.max)
	}
	lost := s.lock.Context().Done()
	var dead, warned <-chan struct{}
	known := s.lock.Lease().Expires
	if s.guard != nil {
		dead, warned = s.guard.gone, s.guard.warned
	}
	rest := &leftover{group: s.child.group}
	for {
		if end := s.lock.Lease().Expires; s.guard != nil && end.After(known) {
			known = end
			s.guard.tell(s.until()) // first: standard error may hold us up
			s.detailEnd(end)
		}
		left := s.left()
		switch {
		case !s.keepGoing && s.kill.IsZero() && left <= s.grace:
			s.stop(exitLost, "it could not be renewed in time")
		case !s.killed && !s.kill.IsZero() && (!s.keepGoing && left <= 0 || !time.Now().Before(s.kill)):
			s.say("%s: %s", s.name, s.send(syscall.SIGKILL))
		}
		if !s.gone.IsZero() {
			s.child.reap()
			switch {
			case rest.gone():
				return
			case strangers(s.child.group), s.killed && time.Since(s.gone) > s.grace+time.Second:
				if !working(s.child.group) {
					return // only zombies are left
				}
				if !s.others {
					s.others = true
					s.say("%s: processes that lockstep can't end, as those of another user, are left in the group %d of the command: "+
						"it waits for them, and renews the lock", s.name, s.child.group)
				}
			}
		}
		select {
		case change := <-changes:
			switch {
			case change.gone:
				s.code = change.code()
				s.gone = time.Now()
				over = nil // it is a limit of the command, which has ended: its code stays
				s.leftovers()
			case change.Stopped() && s.foreground:
				s.suspend()
			case change.Stopped() && change.StopSignal() != syscall.SIGTSTP: // that one we have passed on
				s.halted = true
				s.say("%s: the command is stopped (%s); the lock stays held until CONT comes and it ends", s.name, stopped(change.StopSignal()))
			}
		case sig := <-s.signals:
			s.pass(sig)
		case <-lost:
			lost = nil
			if cause := context.Cause(s.lock.Context()); errors.Is(cause, locker.ErrLost) {
				s.stop(exitLost, cause.Error())
			}
		case <-over:
			s.stop(exitMax, "-max is over")
		case <-dead:
			dead = nil
			s.replaceGuard()
		case r := <-s.next:
			s.use(r)
			dead, warned = s.guard.gone, s.guard.warned
			if r.err != nil {
				dead = nil
			}
		case <-warned:
			warned = nil
			s.stop(exitLost, tooLong)
		case <-time.After(s.pause(left)):
		}
	}
}

func (s *supervisor) detailEnd(end time.Time) {
	s.detail("%s: the lease ends at %s", s.name, end.Format(time.RFC3339Nano))
}

// pause is how long nothing has to be looked at. Timers stand still while the machine is suspended.
func (s *supervisor) pause(left time.Duration) time.Duration {
	d := min(time.Second, s.ttl/10)
	switch {
	case s.others:
		return min(d, 100*time.Millisecond)
	case !s.gone.IsZero():
		return min(d, 5*time.Millisecond)
	}
	if !s.kill.IsZero() && !s.killed {
		d = min(d, time.Until(s.kill))
	}
	switch {
	case s.keepGoing || s.killed:
	case s.kill.IsZero():
		d = min(d, left-s.grace)
	default:
		d = min(d, left)
	}
	return max(d, time.Millisecond)
}

// stop sends TERM, once. KILL follows after the grace, or when the lease ends.
func (s *supervisor) stop(exit int, why string) {
	if s.keepGoing && exit == exitLost {
		s.exit, s.reason = exit, why
		s.say("%s: the lock is lost, and the command goes on: %s", s.name, why)
		return
	}
	known := s.exit == exitLost
	if s.exit == 0 {
		s.exit, s.reason = exit, why
	}
	if exit == exitLost {
		why = "the lock is lost: " + why
	}
	left := s.grace
	if !s.keepGoing {
		left = min(left, max(s.left(), 0))
	}
	switch {
	case !s.kill.IsZero():
		if !known {
			s.say("%s: %s", s.name, why)
		}
	case left >= time.Millisecond:
		s.say("%s: %s; %s, KILL follows in %v at most", s.name, why, s.terminate(), left.Round(time.Millisecond))
	default: // the guard has killed it, or does so now
		s.kill = time.Now()
		s.say("%s: %s; %s", s.name, why, s.send(syscall.SIGKILL))
	}
}

// terminate sends TERM, unless the guard has done so.
func (s *supervisor) terminate() (said string) {
	s.kill = time.Now().Add(s.grace)
	if s.guard == nil {
		return sent(syscall.SIGTERM, theCommand, terminateGroup(s.child.group))
	}
	select {
	case <-s.guard.warned:
		return sent(syscall.SIGTERM, theCommand, nil)
	default:
		defer s.guard.warn()
		return sent(syscall.SIGTERM, theCommand, terminateGroup(s.child.group))
	}
}

const theCommand = "the command"

// send sends a signal to the group.
func (s *supervisor) send(sig syscall.Signal) (said string) {
	s.killed = s.killed || sig == syscall.SIGKILL
	return sent(sig, theCommand, signalGroup(s.child.group, sig))
}

// leftovers ends what the command has left in its group.
func (s *supervisor) leftovers() {
	s.child.reap()
	if !groupLives(s.child.group) || !s.kill.IsZero() {
		return
	}
	_ = s.terminate()
	s.detail("%s: the command has ended, and processes of its group have not: TERM went to them", s.name)
}

// pass passes a signal on.
func (s *supervisor) pass(sig os.Signal) {
	number, _ := sig.(syscall.Signal)
	switch number {
	case syscall.SIGINT, syscall.SIGTERM:
		since, again := time.Since(s.last), number == s.ending
		if again && since < 100*time.Millisecond {
			return // timeout(1) sends it to its child, and then to its group
		}
		s.last, s.ending = time.Now(), number
		if since < 2*time.Second {
			number = syscall.SIGKILL
		}
	case syscall.SIGCONT:
		s.resume()
		return
	}
	said := s.send(number)
	if strangers(s.child.group) {
		s.say("%s: %s", s.name, said)
	}
	switch {
	case number == syscall.SIGTSTP:
		s.suspend()
	case s.halted && slices.Contains(endings, sig):
		s.halted = false
		_ = s.send(syscall.SIGCONT) // or it does not see the signal
	}
}

// replacement is another guard.
type replacement struct {
	guard *guardPipe
	err   error
}

// replaceGuard starts another guard when somebody has killed the first. One that has done its work
// ends too. Meanwhile the command is supervised.
func (s *supervisor) replaceGuard() {
	if s.guard.acted || s.left() <= 0 {
		return
	}
	next, until := make(chan replacement, 1), s.until()
	s.next = next
	go func() {
		g, err := startGuard(s.child.group, until, s.grace, s.name, startLimit)
		next <- replacement{g, err}
	}()
}

// use makes another guard the guard.
func (s *supervisor) use(r replacement) {
	s.next = nil
	if r.err != nil {
		s.say("%s: the guard process has ended, and no other can be started: %v", s.name, r.err)
		return
	}
	_ = s.guard.to.Close()
	s.guard = r.guard
	s.guard.tell(s.until())
	if !s.kill.IsZero() {
		s.guard.warn()
	}
}
