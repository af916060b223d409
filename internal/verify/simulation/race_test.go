//go:build race

package simulation

// slower is by how much fewer schedules there is time for under the race detector.
const slower = 20
