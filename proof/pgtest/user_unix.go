//go:build unix

package pgtest

import (
	"bytes"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
	sigKill = syscall.SIGKILL
)

// server is the user and the group that run the server, if the test runs as root.
func server() (uid, gid int, ok bool) {
	if os.Geteuid() != 0 {
		return 0, 0, false
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ = strconv.Atoi(u.Uid)
			gid, _ = strconv.Atoi(u.Gid)
			return uid, gid, true
		}
	}
	return 0, 0, false
}

func asUser(cmd *exec.Cmd) {
	if uid, gid, ok := server(); ok {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
}

func give(dir string) error {
	if uid, gid, ok := server(); ok {
		return os.Chown(dir, uid, gid)
	}
	return nil
}

// signalChildren signals the processes that pid has forked, where /proc tells them, and returns them.
func signalChildren(pid int, sig syscall.Signal) (children []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		if err != nil {
			continue
		}
		if _, parent := stateOf(child); parent == strconv.Itoa(pid) {
			_ = syscall.Kill(child, sig) // it may have ended
			children = append(children, child)
		}
	}
	return children
}

// stateOf returns the letter of the state of a process and its parent, or nothing if it has ended.
func stateOf(pid int) (state, parent string) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", ""
	}
	// "pid (name) state parent …", and the name may itself contain parentheses
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 2 {
		return "", ""
	}
	return fields[0], fields[1]
}

// awaitEnd waits until killed processes have ended. One that nobody reaps stays a zombie.
func awaitEnd(pids []int) {
	for _, pid := range pids {
		for state, _ := stateOf(pid); state != "" && state != "Z"; state, _ = stateOf(pid) {
			time.Sleep(time.Millisecond)
		}
	}
}
