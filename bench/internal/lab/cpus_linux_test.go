package lab

import (
	"os"
	"runtime"
	"testing"
	"time"
)

// The other process is this one, which knows its CPU time from another source as well.
func TestTheCPUTimeOfAProcessIsWhatItHasUsed(t *testing.T) {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	used := func() time.Duration {
		before, err := CPUTime()
		if err != nil {
			t.Fatal(err)
		}
		got, err := cpuTime(self)
		if err != nil {
			t.Fatal(err)
		}
		after, err := CPUTime()
		if err != nil {
			t.Fatal(err)
		}
		const tick = 10 * time.Millisecond // getrusage may count in ticks
		if got < before-tick || got > after+tick {
			t.Errorf("CPU time %v, want %v to %v", got, before, after)
		}
		return got
	}
	first := used()
	for start := time.Now(); time.Since(start) < 20*time.Millisecond; {
		runtime.Gosched() // this is the work
	}
	if used() <= first {
		t.Error("work takes no CPU time")
	}
}

func TestAnAlarmIsNeverEarly(t *testing.T) {
	a, err := newAlarm()
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	for _, d := range []time.Duration{-1, 0, 1, 300 * time.Microsecond, 12 * time.Millisecond} {
		start := time.Now()
		if err := a.wait(d); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < d {
			t.Errorf("wait(%v) took %v", d, took)
		}
	}
}
