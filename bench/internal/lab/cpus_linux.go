package lab

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	pinnedEnv  = "LOCKSTEP_BENCH_PINNED"
	spinnerEnv = "LOCKSTEP_BENCH_SPINNER"

	clientCPU, serverCPU = 0, 1
)

// PinSelf gives the client a CPU of its own, as if the server were on another machine. Without it,
// the kernel runs client and server in turns on one CPU as long as nothing else is runnable, and
// moves one of them at the first sign of concurrency. Their placement then decides most of a
// figure.
//
// It starts the program again, so call it first.
func PinSelf() error {
	if os.Getenv(pinnedEnv) != "" {
		return nil
	}
	if runtime.NumCPU() < 2 {
		return fmt.Errorf("%d CPU: client and server need one each (or -pin=false)", runtime.NumCPU())
	}
	if err := pin(0, clientCPU); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// After the restart all threads are pinned, and the runtime knows that it has one CPU.
	return syscall.Exec(self, os.Args, append(os.Environ(), pinnedEnv+"=1"))
}

func pin(pid, cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if pid == 0 {
		runtime.LockOSThread() // the thread that calls exec
	}
	return unix.SchedSetaffinity(pid, &set)
}

// KeepAwake runs a process of idle priority on each of the two CPUs. A CPU that sleeps between two
// commands takes long to wake, which would hide every other effect. The program must call Spin
// first.
func KeepAwake() (stop func()) {
	var spinners []*exec.Cmd
	for cpu := range 2 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), spinnerEnv+"="+strconv.Itoa(cpu), "GOMAXPROCS=1")
		if cmd.Start() == nil { // without them the figures are noisier, not wrong
			spinners = append(spinners, cmd)
		}
	}
	return func() {
		for _, cmd := range spinners {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
}

// Spin returns at once, unless this process was started to keep a CPU awake.
func Spin() {
	cpu := os.Getenv(spinnerEnv)
	if cpu == "" {
		return
	}
	const schedIdle = 5 // see sched(7): it yields at once, and its CPU counts as idle
	var priority int32
	if n, err := strconv.Atoi(cpu); err == nil {
		_ = pin(0, n)
	}
	_, _, _ = syscall.Syscall(syscall.SYS_SCHED_SETSCHEDULER, 0, schedIdle, uintptr(unsafe.Pointer(&priority)))
	for parent := os.Getppid(); os.Getppid() == parent; {
		for range 100_000_000 { // keeps the CPU busy
		}
	}
	os.Exit(0)
}

// CPUTime is the CPU time of this process, on all CPUs.
func CPUTime() (time.Duration, error) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0, err
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()), nil
}

// cpuTime is the CPU time of another process, on all CPUs. The call costs that process nothing.
func cpuTime(p *os.Process) (time.Duration, error) {
	const scheduler = 2 // CPUCLOCK_SCHED of the kernel: see clock_getcpuclockid(3)
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^p.Pid<<3|scheduler), &used); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", p.Pid, err)
	}
	return time.Duration(used.Nano()), nil
}

// An alarm wakes a goroutine by a timer of the kernel. time.Sleep is up to 1 ms late, because the
// runtime waits for whole milliseconds when it has nothing else to do.
type alarm struct {
	fd   int
	file *os.File // of fd; the runtime waits for it as for a connection
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("timerfd_create: %w", err)
	}
	return &alarm{fd, os.NewFile(uintptr(fd), "timerfd")}, nil
}

func (a *alarm) wait(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	once := unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}
	if err := unix.TimerfdSettime(a.fd, 0, &once, nil); err != nil {
		return fmt.Errorf("timerfd_settime: %w", err)
	}
	_, err := a.file.Read(make([]byte, 8)) // the number of expirations
	return err
}

func (a *alarm) close() { _ = a.file.Close() }

func freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func thaw(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
