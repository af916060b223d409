//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package command

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The guard is a second process of this program. It has the process group of the child and the end
// of the lease, and kills the group at that end unless it hears of a later one. So the end is kept
// also if this process is killed or stopped. When the pipe to it breaks, nobody renews the lease
// any more. There is then nothing to wait for: the guard sends TERM at once, and uses the grace for
// an end in order. This process tells the guard that it has sent TERM. If it does not, since it is
// stopped, the guard sends TERM when three quarters of the grace are left.

const guardName = "lockstep-guard" // argv[0] of the guard

// guardPipe is what the parent has of a guard.
type guardPipe struct {
	to      *os.File
	warned  chan struct{} // closed when the guard has sent TERM
	gone    chan struct{} // closed when the guard has ended
	acted   bool          // it has sent KILL; to be read after gone
	process *os.Process
	until   int64
}

// startLimit is for the start of a guard.
const startLimit = 30 * time.Second

// startGuard starts a guard for a group until a time of clock, and returns when it watches.
func startGuard(group int, until int64, grace time.Duration, name string, limit time.Duration) (*guardPipe, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer drop(read)
	answers, answer, err := os.Pipe()
	if err != nil {
		_ = write.Close()
		return nil, err
	}
	g := &guardPipe{to: write, warned: make(chan struct{}), gone: make(chan struct{})}
	cmd := &exec.Cmd{
		Path: self(), Args: []string{guardName, strconv.Itoa(group), grace.String(), name}, Env: []string{},
		Stderr: os.Stderr, ExtraFiles: []*os.File{read, answer}, Dir: "/",
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // no signal of a terminal or of a group reaches it
	}
	err = launch(cmd)
	_ = answer.Close()
	if err != nil {
		_ = write.Close()
		_ = answers.Close()
		return nil, err
	}
	g.process = cmd.Process
	g.tell(until)
	ready := make(chan struct{})
	go func() {
		defer drop(answers)
		for r := bufio.NewScanner(answers); r.Scan(); {
			switch r.Text() {
			case "ready":
				close(ready)
			case "warned":
				close(g.warned)
			case "acted":
				g.acted = true
			}
		}
		_ = cmd.Wait()
		waited(cmd.Process.Pid)
		close(g.gone)
	}()
	select {
	case <-ready:
		return g, nil
	case <-g.gone:
		err = errors.New("the guard process did not start")
	case <-time.After(limit):
		err = fmt.Errorf("the guard process did not start within %v", limit)
		_ = g.process.Kill()
	}
	_ = write.Close()
	return nil, err
}

// tell moves the end on.
func (g *guardPipe) tell(until int64) {
	if until == g.until {
		return
	}
	g.until = until
	g.write(fmt.Sprintf("until %d", until))
}

// warn tells it that the group has got TERM.
func (g *guardPipe) warn() { g.write("warned") }

func (g *guardPipe) write(line string) {
	_ = g.to.SetWriteDeadline(time.Now().Add(time.Second)) // a guard that is stopped does not keep us
	put(g.to, "%s\n", line)
}

// dismiss ends the guard: nothing is left to guard.
func (g *guardPipe) dismiss() {
	g.write("bye")
	_ = g.to.Close()
	select {
	case <-g.gone:
	case <-time.After(time.Second):
		_ = g.process.Kill()
		<-g.gone
	}
}

// guardMain is the guard. Its pipes are the files 3 and 4.
func guardMain() int {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
	if len(os.Args) < 4 {
		return exitUsage
	}
	group, err := strconv.Atoi(os.Args[1])
	grace, badGrace := time.ParseDuration(os.Args[2])
	if err != nil || badGrace != nil || group <= 1 {
		return exitUsage
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for r := bufio.NewScanner(os.NewFile(3, "pipe")); r.Scan(); {
			lines <- r.Text()
		}
	}()
	until := end(<-lines)
	if until == 0 {
		return exitUnavailable // the parent has ended before it started anything
	}
	answer, stderr := os.NewFile(4, "answer"), newPatient(os.Stderr)
	tell := func(format string, args ...any) { put(stderr, format+"\n", args...) }
	put(answer, "ready\n")
	to := fmt.Sprintf("the process group %d", group)
	left := &leftover{group: group}
	for orphan, warned := false, false; ; {
		next := until
		if !warned {
			next -= int64(grace) / 4 * 3
		}
		switch {
		case now() >= until:
			put(answer, "acted\n")
			err := killGroup(group)
			tell("lockstep: guard of %q: the lease ends, or the grace is over: %s", os.Args[3], sent(syscall.SIGKILL, to, err))
			if working(group) {
				tell("lockstep: guard of %q: processes that can't be ended are left in %s, and run beside the next holder", os.Args[3], to)
			}
			return 0
		case now() >= next:
			warned = true
			put(answer, "warned\n")
			err := terminateGroup(group)
			tell("lockstep: guard of %q: lockstep is stopped: %s", os.Args[3], sent(syscall.SIGTERM, to, err))
			continue
		}
		select {
		case line, open := <-lines:
			switch {
			case line == "bye":
				return 0
			case line == "warned":
				warned = true
			case open:
				until = end(line)
			default:
				orphan, warned, lines = true, true, nil
				until = min(until, now()+int64(grace))
				err := terminateGroup(group)
				tell("lockstep: guard of %q: lockstep is gone: %s", os.Args[3], sent(syscall.SIGTERM, to, err))
			}
		case <-time.After(min(time.Duration(next-now()), pause(orphan))):
			if orphan && left.gone() {
				return 0
			}
		}
	}
}

// end reads a line that tells the end of the lease; 0: it tells none.
func end(line string) int64 {
	text, _ := strings.CutPrefix(line, "until ")
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return at
}

// pause is how long the guard sleeps at most: timers stand still while the machine is suspended.
func pause(orphan bool) time.Duration {
	if orphan {
		return 10 * time.Millisecond
	}
	return time.Second
}

// killGroup returns when nothing of the group lives, or after a while: processes of another user stay
// in it, which is an error.
func killGroup(group int) (err error) {
	left := &leftover{group: group}
	for range 100 {
		err = signalGroup(group, syscall.SIGKILL)
		if left.gone() {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// terminateGroup sends TERM.
func terminateGroup(group int) error {
	err := signalGroup(group, syscall.SIGTERM)
	_ = signalGroup(group, syscall.SIGCONT) // or a process that is stopped does not see it
	return err
}

// signalGroup sends a signal to the processes of a group that it reaches. If all are of another user,
// it is EPERM. A group may be gone, which is no error.
func signalGroup(group int, sig syscall.Signal) error {
	if err := syscall.Kill(-group, sig); err != syscall.ESRCH {
		return err
	}
	return nil
}

// sent says what became of a signal.
func sent(sig syscall.Signal, to string, err error) string {
	name := strings.TrimPrefix(unix.SignalName(sig), "SIG")
	if err != nil {
		return fmt.Sprintf("%s could not be sent to %s, which runs as another user: %v", name, to, err)
	}
	return fmt.Sprintf("%s went to %s", name, to)
}

// groupLives tells whether a group has a process, which may be a zombie.
func groupLives(group int) bool { return syscall.Kill(-group, 0) != syscall.ESRCH }

// leftover is what is left of a group whose leader has ended.
type leftover struct {
	group int
	since time.Time // of the first look
	next  time.Time // look at all processes again
}

// gone tells whether nothing of the group lives. Zombies do not: their parent may wait for nobody. To
// find that out takes a look at all processes, so it is done less and less often.
func (l *leftover) gone() bool {
	now := time.Now()
	switch {
	case !groupLives(l.group):
		return true
	case l.since.IsZero():
		l.since = now
	case now.Before(l.next):
		return false
	}
	gone := onlyZombies(l.group)
	l.next = time.Now().Add(min(max(10*time.Millisecond, now.Sub(l.since)/4), time.Second))
	return gone
}

// strangers tells whether all that live in a group are processes of another user.
func strangers(group int) bool { return syscall.Kill(-group, 0) == syscall.EPERM }

// now is a clock that all processes of the machine share, in nanoseconds.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(clockID, &t); err != nil {
		panic(err) // not on these systems
	}
	return t.Nano()
}

// self is this program, also after its file was replaced.
func self() string {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe"
	}
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}
