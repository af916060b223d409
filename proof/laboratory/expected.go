package laboratory

import (
	"maps"
	"strings"
)

// Expected has the tables of anomalies of docs/safety.md and anomalies.md; a test compares them. A cell that is
// "not run" contradicts nothing.
var Expected = func() Matrix {
	all := parseMatrix(`
	                     crash      pause      restart    restarts   loser      clock      killed
	legacy-getset        free       two work   two hold   –          two hold   two hold   free
	legacy-expire        free       two work   two hold   –          two hold   safe       repaired
	legacy-setbit        for ever   safe       two hold   –          safe       safe       free
	legacy-getbit        for ever   safe       two hold   –          two hold   safe       free
`)
	maps.Copy(all, parseMatrix(`
	                     crash      shorter    clock      stop
	semaphore-counter    for ever   safe       safe       –
	semaphore-clocks     free       too many   too many   –
	rwlock-set           late       two hold   safe       –
	cron                 –          –          safe       –
	cron-setnx           –          –          ran twice  –
	election             free       –          –          free
	election-setnx       free       –          –          two work
`))
	for _, r := range rows {
		if !r.Legacy {
			all[r.Name] = r.promised()
		}
	}
	for _, r := range ofSeveral() {
		all[r.Name] = map[string]Outcome{"crash": Free, "shorter": Safe, "clock": Safe, "stop": None}
	}
	return all
}()

// promised is what a strategy of Lockstep shows, alone or as a quorum.
func (r Row) promised() map[string]Outcome {
	m := map[string]Outcome{
		"crash": Free, "pause": TwoWork, "restart": TwoHold, "restarts": TwoHold, "loser": Safe, "clock": Safe, "killed": Free,
	}
	if r.Numbered { // the resource refuses the late write
		m["pause"] = Fenced
	}
	if r.servers == 1 {
		m["restarts"] = None
		if r.Numbered { // the number rises, since it counts on from the clock
			m["restart"] = Fenced
		}
		return m
	}
	// So many servers may forget without a second holder.
	bears := 2*r.quorum - r.servers - 1
	if r.strict || bears >= 1 {
		m["restart"] = Safe
	}
	if r.strict || bears >= 2 {
		m["restarts"] = Safe
	}
	return m
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
