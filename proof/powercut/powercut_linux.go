package powercut

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"github.com/lockstep-go/lockstep/proof/daemon"
)

// userEnv is set in a process of the test binary that is to become a program: to the user and the group
// of that, or to "self".
const userEnv = "LOCKSTEP_POWERCUT"

// start starts the test binary, which lets the kernel ask us, and then becomes the program.
func (d *Disk) start(dir string, cmd *exec.Cmd) (*daemon.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs := os.NewFile(uintptr(pair[1]), "socket")
	user := "self"
	if cmd.SysProcAttr != nil && cmd.SysProcAttr.Credential != nil {
		user = fmt.Sprint(cmd.SysProcAttr.Credential.Uid, " ", cmd.SysProcAttr.Credential.Gid)
		cmd.SysProcAttr.Credential = nil // the user may not be allowed to run a test binary
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, userEnv+"="+user)
	cmd.Args = append([]string{self, cmd.Path}, cmd.Args[1:]...)
	cmd.Path, cmd.ExtraFiles = self, []*os.File{theirs}
	p, err := daemon.Start(dir, cmd)
	_ = theirs.Close()
	if err != nil {
		_ = syscall.Close(pair[0])
		return nil, err
	}
	listener, err := receive(pair[0])
	_ = syscall.Close(pair[0])
	if err != nil {
		p.Kill()
		return nil, fmt.Errorf("%w; its log:\n%s", err, p.Log())
	}
	idle := make(chan struct{})
	d.idle = idle
	c := copier{d.folder, d.synced, map[string]bool{}}
	go func() {
		defer close(idle)
		defer func() { _ = syscall.Close(listener) }()
		c.serve(uintptr(listener))
	}()
	return p, nil
}

// receive receives a file descriptor from the process.
func receive(socket int) (int, error) {
	data, control := make([]byte, 1), make([]byte, syscall.CmsgSpace(4))
	_, n, _, _, err := syscall.Recvmsg(socket, data, control, syscall.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, err
	}
	messages, err := syscall.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) == 0 {
		return 0, cmp.Or(err, errors.New("the kernel does not ask before calls"))
	}
	files, err := syscall.ParseUnixRights(&messages[0])
	if err != nil {
		return 0, err
	}
	return files[0], nil
}

// Main becomes another program, if [Disk.Start] has started this process for that.
func Main() {
	user := os.Getenv(userEnv)
	if user == "" {
		return
	}
	fmt.Fprintln(os.Stderr, become(user, os.Args[1], os.Args[1:]))
	os.Exit(1)
}

// become returns only if it fails.
func become(user, program string, args []string) error {
	const socket = 3 // the first of the extra files
	listener, err := listenForSyncs()
	if err != nil {
		return err
	}
	if err := syscall.Sendmsg(socket, []byte{0}, syscall.UnixRights(int(listener)), nil, 0); err != nil {
		return err
	}
	if err := syscall.Close(socket); err != nil {
		return err
	}
	if user != "self" {
		var uid, gid int
		if _, err := fmt.Sscan(user, &uid, &gid); err != nil {
			return err
		}
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(gid), syscall.Setuid(uid)); err != nil {
			return err
		}
	}
	if err := os.Unsetenv(userEnv); err != nil {
		return err
	}
	runtime.LockOSThread()
	// the kernel has forgotten this for another thread, and for another user
	if _, _, e := syscall.Syscall6(syscall.SYS_PRCTL, dieWithParent, uintptr(syscall.SIGKILL), 0, 0, 0, 0); e != 0 {
		return e
	}
	return syscall.Exec(program, args, os.Environ())
}

// A copier copies files below from to the folder to when they are safe.
type copier struct {
	from, to string
	written  map[string]bool // files that were opened with O_SYNC
}

// serve answers the kernel until all processes have ended.
//
// ENOENT from the kernel means that the process was killed, or that a signal, which Go's scheduler sends
// often, has interrupted the call that the kernel asks about. Such a call begins again, and the kernel
// asks again.
func (c copier) serve(listener uintptr) {
	for {
		poll := struct {
			fd              int32
			events, revents int16
		}{fd: int32(listener), events: pollIn}
		if _, _, e := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1, 0, 0, 0, 0); e == syscall.EINTR {
			continue
		} else if e != 0 {
			panic(e)
		}
		if poll.revents&pollIn == 0 {
			return // no process is left
		}
		var n notification
		if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, listener, notificationReceive, uintptr(unsafe.Pointer(&n))); e != 0 {
			if e == syscall.EINTR || e == syscall.ENOENT {
				continue
			}
			panic(e)
		}
		if err := c.handle(n); err != nil {
			panic(err)
		}
		r := response{id: n.id, flags: continueFlag}
		if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, listener, notificationSend, uintptr(unsafe.Pointer(&r))); e != 0 && e != syscall.ENOENT {
			panic(e)
		}
	}
}

// handle copies the content before the call: what is written meanwhile may be missed by it.
func (c copier) handle(n notification) error {
	switch n.nr {
	case syscall.SYS_OPENAT:
		c.written[text(n, 1)] = true
	case syscall.SYS_RENAMEAT:
		from, to := text(n, 1), text(n, 3)
		if c.written[from] {
			return c.copy(from, to)
		}
	default:
		path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", n.pid, int32(n.args[0])))
		if err != nil {
			return nil //nolint:nilerror // the process was killed
		}
		return c.copy(path, path)
	}
	return nil
}

// text reads an argument. It is empty if the process was killed.
func text(n notification, argument int) string {
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", n.pid))
	if err != nil {
		return ""
	}
	defer func() { _ = memory.Close() }()
	text, err := bufio.NewReader(io.NewSectionReader(memory, int64(n.args[argument]), 4096)).ReadString(0)
	if err != nil {
		return ""
	}
	return text[:len(text)-1]
}

func (c copier) copy(path, as string) error {
	name, err := filepath.Rel(c.from, as)
	if err != nil || strings.HasPrefix(name, "..") {
		return nil //nolint:nilerror // it is elsewhere
	}
	from, err := os.Open(path)
	if err != nil {
		return nil //nolint:nilerror // it was removed
	}
	defer func() { _ = from.Close() }()
	info, err := from.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	target := filepath.Join(c.to, name)
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return err
	}
	to, err := os.OpenFile(target, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := to.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
			return err
		}
	}
	_, err = io.Copy(to, from)
	return err
}

// As in linux/poll.h, linux/prctl.h and linux/seccomp.h.
const (
	pollIn              = 1
	dieWithParent       = 1
	setNoNewPrivileges  = 38
	setFilter           = 1
	allThreads          = 1<<0 | 1<<4 // and an error that is none of a thread
	newListener         = 1 << 3
	allow               = 0x7fff0000
	ask                 = 0x7fc00000
	continueFlag        = 1
	notificationReceive = 0xc0502100
	notificationSend    = 0xc0182101
)

type notification struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type response struct {
	id    uint64
	val   int64
	err   int32
	flags uint32
}

// seccomp is the number of the call.
var seccomp = map[string]uintptr{"amd64": 317, "arm64": 277}[runtime.GOARCH]

// listenForSyncs makes the kernel ask before this process, and what it becomes or starts, syncs or
// renames a file, or opens one with O_SYNC.
func listenForSyncs() (listener uintptr, err error) {
	if seccomp == 0 {
		return 0, errors.ErrUnsupported
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, _, e := syscall.Syscall6(syscall.SYS_PRCTL, setNoNewPrivileges, 1, 0, 0, 0, 0); e != 0 {
		return 0, e
	}
	const flags = 32 // where the lower half of the third argument is
	const load, equal, set, give = syscall.BPF_LD | syscall.BPF_W | syscall.BPF_ABS, syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K,
		syscall.BPF_JMP | syscall.BPF_JSET | syscall.BPF_K, syscall.BPF_RET | syscall.BPF_K
	filter := []syscall.SockFilter{
		{Code: load, K: 0}, // the number of the call
		{Code: equal, K: syscall.SYS_FSYNC, Jt: 6},
		{Code: equal, K: syscall.SYS_FDATASYNC, Jt: 5},
		{Code: equal, K: syscall.SYS_RENAMEAT, Jt: 4},
		{Code: equal, K: syscall.SYS_OPENAT, Jf: 2},
		{Code: load, K: flags},
		{Code: set, K: syscall.O_SYNC &^ syscall.O_DSYNC, Jt: 1},
		{Code: give, K: allow},
		{Code: give, K: ask},
	}
	program := syscall.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	listener, _, e := syscall.Syscall(seccomp, setFilter, allThreads|newListener, uintptr(unsafe.Pointer(&program)))
	if e != 0 {
		return 0, fmt.Errorf("seccomp: %w", e)
	}
	return listener, nil
}
