package laboratory

import (
	"maps"
	"strings"
)

// Expected has the tables of anomalies of docs/safety.md; a test compares them. A cell that is "not run"
// contradicts nothing.
var Expected = both(parseMatrix(`
	                     crash      pause      restart    restarts   loser      clock      killed
	single               free       two work   two hold   –          safe       safe       free
	fair                 free       two work   two hold   –          safe       safe       free
	fenced               free       fenced     fenced     –          safe       safe       free
	reentrant            free       two work   two hold   –          safe       safe       free
	redlock-3/2          free       two work   two hold   two hold   safe       safe       free
	redlock-5/3          free       two work   two hold   two hold   safe       safe       free
	redlock-5/4          free       two work   safe       safe       safe       safe       free
	redlock-5/3-strict   free       two work   safe       safe       safe       safe       free
	redlock-fenced-5/3   free       fenced     two hold   two hold   safe       safe       free
	redlock-fenced-5/4   free       fenced     safe       safe       safe       safe       free
	legacy-getset        free       two work   two hold   –          two hold   two hold   free
	legacy-expire        free       two work   two hold   –          two hold   safe       repaired
	legacy-setbit        for ever   safe       two hold   –          safe       safe       free
	legacy-getbit        for ever   safe       two hold   –          two hold   safe       free
`), parseMatrix(`
	                     crash      shorter    clock      stop
	semaphore            free       safe       safe       –
	semaphore-counter    for ever   safe       safe       –
	semaphore-clocks     free       too many   too many   –
	rwlock               free       safe       safe       –
	rwlock-set           late       two hold   safe       –
	cron                 –          –          safe       –
	cron-setnx           –          –          ran twice  –
	election             free       –          –          free
	election-setnx       free       –          –          two work
`))

func both(a, b Matrix) Matrix {
	maps.Copy(a, b)
	return a
}

// A Matrix has an outcome by strategy and scenario.
type Matrix map[string]map[string]Outcome

// parseMatrix reads columns that are two spaces or more apart; the first line has their names.
func parseMatrix(text string) Matrix {
	m := Matrix{}
	var names []string
	for line := range strings.Lines(strings.TrimSpace(text)) {
		var fields []string
		for _, f := range strings.Split(strings.TrimSpace(line), "  ") {
			if f = strings.TrimSpace(f); f != "" {
				fields = append(fields, f)
			}
		}
		if names == nil {
			names = fields
			continue
		}
		cells := map[string]Outcome{}
		for i, name := range names {
			cells[name] = Outcome(fields[i+1])
		}
		m[fields[0]] = cells
	}
	return m
}
