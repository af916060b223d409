package main

import "syscall"

// diskFree is what a user without privileges may still write to the disk of a folder.
func diskFree(folder string) (bytes uint64, known bool) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(folder, &stat); err != nil {
		return 0, false
	}
	return stat.Bavail * uint64(stat.Bsize), true
}
