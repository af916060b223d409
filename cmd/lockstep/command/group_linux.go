package command

import "path/filepath"

// working tells whether a process of a group is no zombie. Zombies stay in a container whose process 1
// waits for nobody. If /proc does not show all processes, it tells whether there are strangers.
func working(group int) bool {
	if !showsAll() {
		return strangers(group)
	}
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range all {
		if state, of, ok := stateOf(file); ok && of == group && state != "Z" && state != "X" {
			return true
		}
	}
	return false
}
