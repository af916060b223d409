package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A server whose disk is full ends, and each test that waits for it does so for minutes. So a run ends when
// a disk that it writes to has less than this.
const leastDisk = 256 << 20

// withDisk returns a ctx that ends, with a cause that says what to do, when free tells of too little in one
// of the folders. stop ends the watch.
func withDisk(ctx context.Context, folders []string, free func(folder string) (bytes uint64, known bool)) (watched context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	look := func() {
		for _, folder := range folders {
			if bytes, known := free(folder); known && bytes < leastDisk {
				cancel(fmt.Errorf("the disk of %s has %d MiB left: make room, or set TMPDIR and GOCACHE to folders of another disk", folder, bytes>>20))
			}
		}
	}
	look()
	go func() {
		tick := time.NewTicker(2 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				look()
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// disks are the folders that tests and the go command write to.
func disks() []string {
	folders := []string{os.TempDir()}
	if cache := os.Getenv("GOCACHE"); cache != "" {
		return append(folders, cache)
	}
	if cache, err := os.UserCacheDir(); err == nil {
		folders = append(folders, filepath.Join(cache, "go-build"))
	}
	return folders
}
