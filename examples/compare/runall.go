package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// A result is a row of the table.
type result struct {
	row   row
	why   string // it was left out
	speed *speed // nil: not measured
	cells []cell
}

// runAll measures one strategy after the other, and then plays the scenarios of all at once: they spend their time
// waiting. Each strategy has servers of its own.
func runAll(ctx context.Context, p *park, rows []row, wanted []scenario, o options) ([]result, error) {
	results := make([]result, len(rows))
	servers := make([][]server, len(rows))
	for i, r := range rows {
		results[i].row = r
		var err error
		servers[i], err = p.take(r.servers)
		switch {
		case errors.Is(err, errTooFew):
			results[i].why = err.Error()
			continue
		case err != nil:
			return nil, err
		}
		if o.only == "" || o.only == speedColumn {
			s, err := measure(ctx, p, r, servers[i], o.size)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
			results[i].speed = &s
		}
	}
	var all sync.WaitGroup
	for i := range results {
		r := &results[i]
		if r.why != "" {
			continue
		}
		all.Go(func() {
			for _, sc := range wanted {
				r.cells = append(r.cells, play(ctx, p, r.row, servers[i], sc))
			}
		})
	}
	all.Wait()
	return results, context.Cause(ctx)
}
