package laboratory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/redis/go-redis/v9/logging"
)

// The test binary is the program of the owners as well, which then know the strategies that are broken on purpose too.
func TestMain(m *testing.M) {
	logging.Disable()
	if IsOwner() {
		rows = slices.Concat(rows, broken, starved)
		if err := Own(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(redistest.Main(m))
}

// TestEveryCellIsAsExpected plays every scenario with every strategy.
func TestEveryCellIsAsExpected(t *testing.T) {
	for _, servers := range []string{"embedded", "redis"} {
		t.Run(servers, func(t *testing.T) {
			if servers == "embedded" {
				full.Only(t)
			}
			t.Parallel()
			if servers == "redis" {
				redistest.Require(t)
			}
			options := Options{Servers: servers, Size: Size{Pairs: 20, HandOvers: 2, Limit: time.Second}}
			found, err := Run(t.Context(), options)
			for try := 1; try < 3 && (err != nil || showsTooLittle(found)); try++ { // it needs its CPU in time
				t.Log(errors.Join(err, found.Err()))
				found, err = Run(t.Context(), options)
			}
			if err := errors.Join(err, found.Err()); err != nil {
				t.Fatal(err)
			}
			if n := len(found.results()); n != len(Expected) {
				t.Errorf("%d rows; %d are expected", n, len(Expected))
			}
			for name, want := range map[string][2]int{ // commands and round trips of a lock
				"single": {2, 2}, "fair": {2, 2}, "fenced": {2, 2}, "reentrant": {2, 2}, "redlock-3/2": {6, 2}, "redlock-5/4": {10, 2},
				"redlock-5/3-strict": {10, 2}, "redlock-fenced-5/3": {10, 2},
				"legacy-getset": {2, 2}, "legacy-expire": {7, 4}, "legacy-setbit": {2, 2}, "legacy-getbit": {3, 3},
			} {
				for _, r := range found.results() {
					if r.Why != "" || r.Speed == nil {
						continue
					}
					if got := [2]int{r.Speed.Commands, r.Speed.Trips}; r.Row.Name == name && got != want {
						t.Errorf("%s: %d commands and round trips; want %d", name, got, want)
					}
				}
			}
			for _, r := range found.results() {
				if left := r.Why != ""; left != (r.Row.strict && servers == "embedded") {
					t.Errorf("%s: left out %v: %s", r.Row.Name, left, r.Why)
				}
			}
			if left := found.NoTimes != ""; left != (servers == "embedded") {
				t.Errorf("times on %s are left out: %v: %s", servers, left, found.NoTimes)
			}
		})
	}
}

// showsTooLittle tells whether cells lack only an anomaly that is expected of them. A cell that shows one
// which is not expected has failed for good.
func showsTooLittle(found Report) bool {
	for _, row := range found.results() {
		for _, c := range row.Cells {
			switch c.Outcome {
			case Expected[row.Row.Name][c.Scenario.Name], NotRun, Safe, Free, Undecided, NotProduced:
			default:
				return false
			}
		}
	}
	return found.Err() != nil
}

func TestAnInterruptIsWhatTheRunFailsWith(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("interrupted")
	time.AfterFunc(200*time.Millisecond, func() { cancel(why) })
	if _, err := Run(ctx, Options{Servers: "embedded", Only: "crash", Strategy: "legacy-setbit"}); !errors.Is(err, why) {
		t.Errorf("Run = %v", err)
	}
}
