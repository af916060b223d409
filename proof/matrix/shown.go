package matrix

import (
	"fmt"
	"regexp"
	"strings"
)

// test is the pattern of -run in a command, and what is around it.
var test = regexp.MustCompile("^(.* -run ')(.*?)('.*)$")

// A Part is what docs/matrix.md shows of one place: some sixty cells in all, those that a choice of
// strategy and store depends on. The others are in the artefact.
type Part struct {
	Where string
	// each strategy under each fault; their commands differ in these two only
	strategies, faults []string
	// or single cells: a strategy and a fault
	cells [][2]string
}

// Parts are the parts of docs/matrix.md.
var Parts = []Part{
	{
		Where:      "simulation",
		strategies: []string{"single", "fair", "fenced", "reentrant", "semaphore", "rwlock", "redlock-5/3", "redlock-5/4"},
		faults:     []string{"net", "pause", "restart", "clock"},
	},
	{Where: "redis-server", cells: [][2]string{
		{"single", "messages lost, late or reset"},
		{"single", "holders killed"},
		{"single", "holders stopped"},
		{"fenced, guarded", "holders stopped"},
		{"single, AOF always", "servers killed"},
		{"single, no persistence", "servers killed"},
		{"redlock 4 of 5", "servers killed"},
		{"single, declared, AOF always", "power cut"},
		{"single, declared, everysec set while it ran, AOF always", "power cut"},
		{"single", "server clock ahead"},
	}},
	{Where: "PostgreSQL", cells: [][2]string{
		{"single", "holders killed"},
		{"single, without Guard", "holders stopped"},
		{"single, with Guard", "holders stopped"},
		{"single", "servers killed"},
		{"single, UNLOGGED", "servers killed"},
		{"single, synchronous standby", "failover"},
		{"single, asynchronous standby", "failover, standby cut off"},
		{"single", "server clock ahead"},
	}},
	{Where: "MariaDB", cells: [][2]string{
		{"single", "servers killed"},
		{"single, innodb_flush_log_at_trx_commit 0", "servers killed"},
		{"single", "server clock ahead"},
	}},
	{Where: "etcd", cells: [][2]string{
		{"single", "holders killed"},
		{"single", "leader killed"},
		{"single", "leader stopped"},
		{"single", "server clock ahead"},
	}},
	{Where: "NATS", cells: [][2]string{
		{"single, sync always", "leader killed"},
		{"single, sync always", "leader stopped"},
		{"single, sync always", "power cut"},
		{"single, sync by default", "power cut"},
		{"single, sync always", "server clock ahead"},
	}},
}

// Cells returns the cells of a part: a strategy and a fault each.
func (p Part) Cells() [][2]string {
	all := p.cells
	for _, s := range p.strategies {
		for _, f := range p.faults {
			all = append(all, [2]string{s, f})
		}
	}
	return all
}

// Show returns a part as docs/matrix.md has it: one letter for each cell, and the commands that make
// them again. It also tells how many cells of the part the table has; if it lacks one there is no text.
func (t *Table) Show(p Part) (text string, has, of int, err error) {
	found := map[[2]string]Cell{}
	for _, c := range t.cells {
		if c.Where == p.Where {
			found[[2]string{c.Strategy, c.Fault}] = c
		}
	}
	for _, key := range p.Cells() {
		if _, ok := found[key]; ok {
			has++
		}
	}
	if of = len(p.Cells()); has < of {
		return "", has, of, nil
	}
	var s strings.Builder
	if len(p.cells) > 0 {
		again := ""
		s.WriteString("| strategy | fault | | test |\n|---|---|---|---|\n")
		for _, key := range p.cells {
			c := found[key]
			parts := test.FindStringSubmatch(c.Command)
			if parts == nil {
				return "", has, of, fmt.Errorf("no test in the command of %s, %s, %s: %s", p.Where, c.Strategy, c.Fault, c.Command)
			}
			command := parts[1] + "TEST" + parts[3]
			if again != "" && command != again {
				return "", has, of, oneCommand(p, again, command)
			}
			again = command
			fmt.Fprintf(&s, "| %s | %s | %s | `%s` |\n", c.Strategy, c.Fault, c.Verdict(), parts[2])
		}
		fmt.Fprintf(&s, "\nOne of these cells: `%s`\n", again)
		return s.String(), has, of, nil
	}
	again := ""
	fmt.Fprintf(&s, "| | %s |\n|---|%s\n", strings.Join(p.faults, " | "), strings.Repeat("---|", len(p.faults)))
	for _, strategy := range p.strategies {
		fmt.Fprintf(&s, "| %s |", strategy)
		for _, fault := range p.faults {
			c := found[[2]string{strategy, fault}]
			fmt.Fprintf(&s, " %s |", c.Verdict())
			command := strings.ReplaceAll(c.Command, " -strategy "+strategy+" ", " -strategy STRATEGY ")
			command = strings.ReplaceAll(command, " -fault "+fault+" ", " -fault FAULT ")
			if again != "" && command != again {
				return "", has, of, oneCommand(p, again, command)
			}
			again = command
		}
		s.WriteString("\n")
	}
	fmt.Fprintf(&s, "\nOne of these cells: `%s`\n", again)
	return s.String(), has, of, nil
}

func oneCommand(p Part, a, b string) error {
	return fmt.Errorf("one command does not make all cells of %s: %s and %s", p.Where, a, b)
}
