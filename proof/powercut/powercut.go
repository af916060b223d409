// Package powercut cuts the power of programs for tests: it takes what they have written and not
// synced.
//
// This is the worst case, in which the disk has written nothing by itself: each file is again as it
// was at its last fsync or fdatasync, or as it was written with O_SYNC and then renamed. A file that
// was removed comes back, which is worse than a real power cut.
//
// A library can't stand between each program and the kernel. So the kernel asks the test before each of
// these calls (seccomp, SECCOMP_RET_USER_NOTIF), and the test copies the file to another folder first.
// For servers that only append to their files there is also redistest.WithVolatileDisk.
package powercut

import (
	"fmt"
	"os"
	"os/exec"

	"github.com/lockstep-go/lockstep/proof/daemon"
)

// A Disk is a folder of a program whose power can be cut.
type Disk struct {
	folder, synced string
	idle           chan struct{} // closed when no process writes to it
}

// NewDisk makes a disk of a folder, with another folder beside it.
func NewDisk(folder string) *Disk { return &Disk{folder: folder, synced: folder + ".synced"} }

// Start is [daemon.Start] of a program that has its files in the folder. What is there now is safe.
// TestMain must call [Main].
func (d *Disk) Start(dir string, cmd *exec.Cmd) (*daemon.Process, error) {
	if err := os.RemoveAll(d.synced); err != nil {
		return nil, err
	}
	if out, err := exec.Command("cp", "-R", "-p", d.folder, d.synced).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cp: %w\n%s", err, out)
	}
	return d.start(dir, cmd)
}

// Cut gives the folder the files as they were synced. The program must have been killed.
func (d *Disk) Cut() error {
	if d.idle == nil {
		return fmt.Errorf("no program has used %s", d.folder)
	}
	<-d.idle // a copy may be under way
	if err := os.RemoveAll(d.folder); err != nil {
		return err
	}
	return os.Rename(d.synced, d.folder)
}
