package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// outcome is what a race has come to.
type outcome struct {
	expected, found int
	holds           []hold
	took            time.Duration
}

func (o outcome) lost() int { return o.expected - o.found }

// fault is an error unless each process had the file to itself and found what the one before had left.
func (o outcome) fault() error {
	lost, at := o.lost(), overlaps(o.holds)
	if lost == 0 && at == 0 {
		return nil
	}
	return fmt.Errorf("the lock failed: %d lost updates, %d overlaps", lost, at)
}

// race lets several workers begin at the same moment and waits for all of them. If one fails, all end.
func race(ctx context.Context, t task) (outcome, error) {
	if err := writeCounter(t.File, 0); err != nil {
		return outcome{}, err
	}
	ctx, endAll := context.WithCancel(ctx)
	defer endAll()
	var crew []*worker
	for range processes {
		w, err := start(ctx, t)
		if err != nil {
			return outcome{}, err
		}
		defer w.stop()
		crew = append(crew, w)
	}

	began := time.Now()
	told, failed := make(chan hold), make(chan error, processes)
	var running sync.WaitGroup
	for _, w := range crew {
		running.Go(func() {
			if err := w.run(told); err != nil {
				failed <- err
				endAll()
			}
		})
	}
	go func() {
		running.Wait()
		close(told)
	}()
	result := outcome{expected: processes * t.Times}
	for h := range told {
		result.holds = append(result.holds, h)
	}
	result.took = time.Since(began)
	select {
	case err := <-failed: // the first: it made the others fail
		return outcome{}, err
	default:
	}
	var err error
	result.found, err = readCounter(t.File)
	return result, err
}
