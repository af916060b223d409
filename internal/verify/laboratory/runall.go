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
}

// runAll measures one strategy after the other, and then plays the scenarios of all at once: they spend their time
// waiting. Each strategy has servers of its own.
func runAll(ctx context.Context, p *park, rows []Row, wanted []Scenario, o Options) ([]Result, error) {
	results := make([]Result, len(rows))
	servers := make([][]server, len(rows))
	for i, r := range rows {
		results[i].Row = r
		var err error
		if servers[i], err = p.take(r.servers); err == nil {
			err = r.awake(ctx, servers[i])
		}
		switch {
		case errors.Is(err, errTooFew), errors.Is(err, errNotHere):
			results[i].Why = err.Error()
			continue
		case err != nil:
			return nil, err
		}
		if o.Only == "" || o.Only == SpeedColumn {
			s, err := measure(ctx, p, r, servers[i], o.Size)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.Name, err)
			}
			results[i].Speed = &s
		}
	}
	var all sync.WaitGroup
	for i := range results {
		r := &results[i]
		if r.Why != "" {
			continue
		}
		all.Go(func() {
			for _, sc := range wanted {
				r.Cells = append(r.Cells, play(ctx, p, r.Row, servers[i], sc))
			}
		})
	}
	all.Wait()
	return results, context.Cause(ctx)
}
