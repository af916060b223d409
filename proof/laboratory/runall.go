package laboratory

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// A Result is a row of the table, with what was found.
type Result struct {
	Row   Row
	Why   string // it was left out
	Speed *Speed // nil: not measured
	Cells []Cell

	measured bool // its speed is wanted
}

// runAll measures one strategy after the other, and then plays the scenarios of all at once: they spend their time
// waiting. Each strategy has servers of its own.
func runAll(ctx context.Context, p *park, wanted []Table, o Options) error {
	var plays sync.WaitGroup
	var begin []func()
	for _, t := range wanted {
		for i := range t.Results {
			r := &t.Results[i]
			servers, err := p.take(r.Row.servers)
			if err == nil {
				err = r.Row.awake(ctx, servers)
			}
			switch {
			case errors.Is(err, errTooFew), errors.Is(err, errNotHere):
				r.Why = err.Error()
				continue
			case err != nil:
				return err
			}
			if r.measured {
				s, err := measure(ctx, p, r.Row, servers, o.Size)
				if err != nil {
					return fmt.Errorf("%s: %w", r.Row.Name, err)
				}
				r.Speed = &s
			}
			begin = append(begin, func() {
				for _, sc := range t.Columns {
					r.Cells = append(r.Cells, play(ctx, p, r.Row, servers, sc))
				}
			})
		}
	}
	for _, play := range begin {
		plays.Go(play)
	}
	plays.Wait()
	return context.Cause(ctx)
}
