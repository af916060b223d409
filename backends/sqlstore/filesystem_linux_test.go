package sqlstore

import (
	"syscall"
	"testing"
)

// standIn names the type of the file system of a file.
func standIn(t *testing.T, file, name string) {
	t.Helper()
	var info syscall.Statfs_t
	if err := syscall.Statfs(file, &info); err != nil {
		t.Fatal(err)
	}
	networkFileSystems[uint32(info.Type)] = name
	t.Cleanup(func() { delete(networkFileSystems, uint32(info.Type)) })
}
