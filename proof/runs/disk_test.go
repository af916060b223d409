package main

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestARunEndsWhenADiskIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left atomic.Uint64 // of the second disk
		left.Store(10 << 30)
		ctx, stop := withDisk(t.Context(), []string{"tmp", "cache", "unknown"}, func(folder string) (uint64, bool) {
			if folder == "cache" {
				return left.Load(), true
			}
			return 10 << 30, folder == "tmp"
		})
		defer stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatalf("with room on all disks: %v", context.Cause(ctx))
		}
		left.Store(leastDisk - 1)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if cause := context.Cause(ctx); cause == nil || !strings.Contains(cause.Error(), "the disk of cache has 255 MiB left") {
			t.Errorf("with a full disk: %v", cause)
		}
	})
}

func TestARunWithAFullDiskDoesNotBegin(t *testing.T) {
	ctx, stop := withDisk(t.Context(), []string{"tmp"}, func(string) (uint64, bool) { return 0, true })
	defer stop()
	if ctx.Err() == nil {
		t.Error("the run began")
	}
}
