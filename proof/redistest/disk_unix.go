//go:build unix

package redistest

import (
	"fmt"
	"io/fs"
	"syscall"
)

// inodeOf is the number of a file on its disk.
func inodeOf(file fs.FileInfo) (uint64, error) {
	stat, ok := file.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("%s has no inode", file.Name())
	}
	return stat.Ino, nil
}
