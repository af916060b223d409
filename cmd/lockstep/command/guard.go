//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package command

import (
	"bufio"
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
// an end in order.

const guardName = "lockstep-guard" // argv[0] of the guard

// guardPipe is what the parent has of a guard.
type guardPipe struct {
	to      *os.File
	gone    chan struct{} // closed when the guard has ended
	acted   bool          // it has killed the group; to be read after gone
	process *os.Process
	until   int64
}

// startGuard starts a guard for a group until a time of clock, and returns when it watches.
func startGuard(group int, until int64, grace time.Duration, name string) (*guardPipe, error) {
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
	g := &guardPipe{to: write, gone: make(chan struct{})}
	cmd := &exec.Cmd{
		Path: self(), Args: []string{guardName, strconv.Itoa(group), grace.String(), name}, Env: []string{},
		Stderr: os.Stderr, ExtraFiles: []*os.File{read, answer}, Dir: "/",
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // no signal of a terminal or of a group reaches it
	}
	err = cmd.Start()
	_ = answer.Close()
	if err != nil {
		_ = write.Close()
		_ = answers.Close()
		return nil, err
	}
	g.process = cmd.Process
	g.tell(until)
	ready := make(chan bool, 1)
	go func() {
		defer drop(answers)
		r := bufio.NewReader(answers)
		_, err := r.ReadString('\n')
		ready <- err == nil
		_, err = r.ReadString('\n') // until the guard acts or ends
		g.acted = err == nil
		_ = cmd.Wait()
		close(g.gone)
	}()
	if !<-ready {
		_ = write.Close()
		return nil, fmt.Errorf("the guard process did not start")
	}
	return g, nil
}

// tell moves the end on.
func (g *guardPipe) tell(until int64) {
	if until == g.until {
		return
	}
	g.until = until
	_ = g.to.SetWriteDeadline(time.Now().Add(time.Second)) // a guard that is stopped does not keep us
	put(g.to, "until %d\n", until)
}

// dismiss ends the guard: nothing is left to guard.
func (g *guardPipe) dismiss() {
	_ = g.to.SetWriteDeadline(time.Now().Add(time.Second))
	put(g.to, "bye\n")
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
	for orphan := false; ; {
		if now() >= until {
			put(answer, "acted\n")
			killGroup(group)
			tell("lockstep: guard of %q: the lease ends, or the grace is over: KILL went to the process group %d", os.Args[3], group)
			return 0
		}
		select {
		case line, open := <-lines:
			switch {
			case line == "bye":
				return 0
			case open:
				until = end(line)
			default:
				orphan, lines = true, nil
				until = min(until, now()+int64(grace))
				signalGroup(group, syscall.SIGTERM)
				signalGroup(group, syscall.SIGCONT)
				tell("lockstep: guard of %q: lockstep is gone: TERM went to the process group %d", os.Args[3], group)
			}
		case <-time.After(min(time.Duration(until-now()), pause(orphan))):
			if orphan && !groupLives(group) {
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

// killGroup returns when the group is gone, or after a while: zombies that nobody waits for stay in
// it.
func killGroup(group int) {
	for range 100 {
		signalGroup(group, syscall.SIGKILL)
		if !groupLives(group) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func signalGroup(group int, sig syscall.Signal) { _ = syscall.Kill(-group, sig) } // it may be gone

func groupLives(group int) bool {
	err := syscall.Kill(-group, 0)
	return err == nil || err == syscall.EPERM
}

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
