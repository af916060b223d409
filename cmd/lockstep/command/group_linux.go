package command

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// working tells whether a process of a group is no zombie. Zombies stay in a container whose process 1
// waits for nobody. If /proc does not show all processes, it tells whether there are strangers.
func working(group int) bool {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return strangers(group)
	}
	if _, err := os.ReadFile("/proc/1/stat"); err != nil {
		return strangers(group)
	}
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range all {
		text, _ := os.ReadFile(file)
		name := strings.LastIndexByte(string(text), ')') // it may have spaces
		fields := strings.Fields(string(text[name+1:]))  // the state, the parent, the group
		if len(fields) > 2 && fields[2] == strconv.Itoa(group) && fields[0] != "Z" && fields[0] != "X" {
			return true
		}
	}
	return false
}
