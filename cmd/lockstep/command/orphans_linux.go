package command

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// adopt makes this process the parent of what its descendants leave behind, as process 1 of a
// container is, and takes the exit codes of all that are left to it. Without that they would stay as
// zombies: in a container for ever, and under a process 1 that waits for nobody as long as it runs. It
// never takes the exit code of a process that somebody waits for here, as Wait4(-1) would.
func adopt() (stop func()) {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // a sandbox may refuse: then only process 1 has orphans
	died, end := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(died, syscall.SIGCHLD)
	go func() {
		for {
			var again <-chan time.Time
			if !reapOrphans() {
				again = time.After(10 * time.Millisecond)
			}
			select {
			case <-died:
			case <-again:
			case <-end:
				return
			}
		}
	}()
	return func() {
		signal.Stop(died)
		close(end)
	}
}

// reapOrphans tells whether no zombie is left. The first that it finds may be one of our own, which
// somebody else takes in a moment.
func reapOrphans() (all bool) {
	own.Lock()
	defer own.Unlock()
	for {
		pid := firstZombie()
		if pid == 0 {
			return true
		}
		if own.pids[pid] {
			return false
		}
		if _, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); err != nil && err != syscall.EINTR {
			return true
		}
	}
}

// firstZombie is a child that has ended, which stays as it is; 0: there is none.
func firstZombie() (pid int) {
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil || info.Signo == 0 {
		return 0
	}
	// The pid is behind three numbers, at an address that a pointer may have.
	raw := (*[unsafe.Sizeof(info)]byte)(unsafe.Pointer(&info))
	at := (12 + unsafe.Alignof(uintptr(0)) - 1) &^ (unsafe.Alignof(uintptr(0)) - 1)
	return int(int32(binary.NativeEndian.Uint32(raw[at:])))
}

// onlyZombies tells whether all processes of a group have ended, and some of them are still waited for.
// It is false if that is not certain: if /proc does not show all processes, or something changes meanwhile.
func onlyZombies(group int) bool {
	if !showsAll() {
		return false
	}
	first, ok := zombies(group)
	if !ok {
		return false
	}
	// A process may have forked and ended before it was looked at. Then its child is among the second.
	second, ok := zombies(group)
	return ok && bytes.Equal(first, second)
}

// zombies are the zombies of a group; not ok: something of it lives, or a process has gone meanwhile.
func zombies(group int) (pids []byte, ok bool) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	slices.Sort(all)
	for _, file := range all {
		state, of, ok := stateOf(file)
		switch {
		case !ok:
			return nil, false
		case of != group:
		case state != "Z" && state != "X":
			return nil, false
		default:
			pids = append(append(pids, file...), ' ')
		}
	}
	return pids, true
}

// showsAll tells whether /proc has all processes of this namespace, also those of other users.
func showsAll() bool {
	self, err := os.Readlink("/proc/self")
	if err != nil || self != strconv.Itoa(os.Getpid()) {
		return false
	}
	_, err = os.ReadFile("/proc/1/stat")
	return err == nil
}

// stateOf reads the state and the group of a process.
func stateOf(file string) (state string, group int, ok bool) {
	text, err := os.ReadFile(file)
	name := strings.LastIndexByte(string(text), ')') // it may have spaces
	fields := strings.Fields(string(text[name+1:]))  // the state, the parent, the group
	if err != nil || len(fields) < 3 {
		return "", 0, false
	}
	group, err = strconv.Atoi(fields[2])
	return fields[0], group, err == nil
}
