//go:build linux

package natsstore_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/proof/rivals"
	"golang.org/x/sys/unix"
)

// A power cut takes what a server has written and not synced. This is the worst case, in which the
// disk has written nothing by itself: each file is again as it was at its last fsync, or as it was
// written with O_SYNC and then renamed. The server is a Go program, so no library can stand between
// it and the kernel. Instead its process lets the kernel ask it before each of these calls
// (seccomp, SECCOMP_RET_USER_NOTIF), and copies the file to another folder first.
//
// A file that the server has removed comes back. That is worse than a real power cut.
func (m *member) cutPower(t *testing.T) {
	t.Helper()
	m.kill()
	if err := os.RemoveAll(m.store()); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(m.store(), os.DirFS(m.synced())); err != nil {
		t.Fatal(err)
	}
}

func (m *member) synced() string { return filepath.Join(m.dir, "synced") }

// sync makes all that the server has written until now safe: it is killed, and started with the
// copying.
func (m *member) sync(t *testing.T) {
	t.Helper()
	m.kill()
	if err := os.CopyFS(m.synced(), os.DirFS(m.store())); err != nil {
		t.Fatal(err)
	}
	m.start(t, "NATS_SYNCED="+m.synced())
}

// copyAtSync copies each file below from, when this process syncs it, to the folder to.
//
// ENOENT from the kernel means that a signal, which Go's scheduler sends often, has interrupted the
// call that the kernel asks about. That call begins again, and the kernel asks again.
func copyAtSync(from, to string) error {
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		return err
	}
	d := &disk{from, to, memory, map[string]bool{}}
	fd, err := listenForSyncs()
	if err != nil {
		return err
	}
	go func() {
		for {
			var n notification
			if _, _, e := unix.Syscall(unix.SYS_IOCTL, fd, notificationReceive, uintptr(unsafe.Pointer(&n))); e != 0 {
				if e == unix.EINTR || e == unix.ENOENT {
					continue
				}
				panic(e)
			}
			if err := d.handle(n); err != nil {
				panic(err)
			}
			r := response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
			if _, _, e := unix.Syscall(unix.SYS_IOCTL, fd, notificationSend, uintptr(unsafe.Pointer(&r))); e != 0 && e != unix.ENOENT {
				panic(e)
			}
		}
	}()
	return nil
}

// A disk copies files below from to the folder to when they are safe.
type disk struct {
	from, to string
	memory   io.ReaderAt     // of this process
	written  map[string]bool // files that were opened with O_SYNC
}

// handle copies the content before the call: what is written meanwhile may be missed by it.
func (d *disk) handle(n notification) error {
	switch n.nr {
	case unix.SYS_OPENAT:
		d.written[d.text(n.args[1])] = true
	case unix.SYS_RENAMEAT:
		from, to := d.text(n.args[1]), d.text(n.args[3])
		if d.written[from] {
			return d.copy(from, to)
		}
	default:
		path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", n.args[0]))
		if err != nil {
			return err
		}
		return d.copy(path, path)
	}
	return nil
}

// text reads an argument.
func (d *disk) text(address uint64) string {
	text, err := bufio.NewReader(io.NewSectionReader(d.memory, int64(address), 4096)).ReadString(0)
	if err != nil {
		return ""
	}
	return text[:len(text)-1]
}

func (d *disk) copy(path, as string) error {
	name, err := filepath.Rel(d.from, as)
	if err != nil || strings.HasPrefix(name, "..") {
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil //nolint:nilerror // a folder, or a file that was removed
	}
	target := filepath.Join(d.to, name)
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return err
	}
	return os.WriteFile(target, data, 0o600)
}

// As in linux/seccomp.h.
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

const (
	notificationReceive = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	notificationSend    = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
)

// listenForSyncs makes the kernel ask before this process syncs or renames a file, or opens one
// with O_SYNC.
func listenForSyncs() (fd uintptr, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	const flags = 32 // where the lower half of the third argument is
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FSYNC, Jt: 6},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FDATASYNC, Jt: 5},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_RENAMEAT, Jt: 4},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_OPENAT, Jf: 2},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: flags},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.O_SYNC &^ unix.O_DSYNC, Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC|unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH|unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	if e != 0 {
		return 0, fmt.Errorf("seccomp: %w", e)
	}
	return fd, nil
}

// The server has no replicas. After each power cut it starts with the copying again.
func TestCampaignOfPowerCuts(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		setting, lines string
		violated       bool
	}{{"sync always", always, false}, {"sync by default", byDefault, true}} {
		t.Run(x.setting, func(t *testing.T) {
			rivals.TwoAtOnce(t)
			cluster := start(t, 1, x.lines)
			server := cluster.members[0]
			server.sync(t)
			c := campaign(cluster, rivals.Fault{Name: "power cut", Strike: func(c *rivals.Crew) {
				c.Holder()
				server.cutPower(t)
				server.start(t, "NATS_SYNCED="+server.synced())
			}})
			c.Setting, c.Violated = x.setting, x.violated
			if x.violated {
				c.Kept, c.TTL, c.Grants = true, 15*time.Second, 1
			}
			c.Run(t)
		})
	}
}

func TestAPowerCutForgetsGrantsAndNumbersUnlessEachWriteIsSynced(t *testing.T) {
	for _, x := range []struct {
		name, settings string
		members        int
		forgets        bool
	}{
		{"one server, by default", byDefault, 1, true},
		{"one server, sync always", always, 1, false},
		{"three servers that lose power together, by default", byDefault, 3, true},
		{"three servers that lose power together, sync always", always, 3, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, x.members, x.settings)
			for _, m := range c.members {
				m.sync(t)
			}
			store := natsstore.New(c.conn, natsstore.WithMaxTTL(maxTTL))
			grant := func(key string) (number uint64) {
				t.Helper()
				eventually(t, "a grant", func() bool {
					r, err := store.SetNXNumbered(t.Context(), key, "token", 20*time.Minute, backends.Turn{})
					number = r.Fence
					return err == nil && r.OK
				})
				return number
			}
			var keys []string
			var last uint64
			for i := range 20 {
				keys = append(keys, fmt.Sprint("key", i))
				last = grant(keys[i])
			}
			for _, m := range c.members {
				m.cutPower(t)
			}
			for _, m := range c.members {
				m.start(t)
			}
			held := heldOf(t, c, keys)
			if want := map[bool]int{true: 0, false: len(keys)}[x.forgets]; held != want {
				t.Errorf("%d of %d keys are held after the power cut; want %d", held, len(keys), want)
			}
			if next := grant("next"); next <= last != x.forgets {
				t.Errorf("the number after %d is %d", last, next)
			}
		})
	}
}
