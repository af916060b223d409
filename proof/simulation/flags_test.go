package simulation

import "flag"

var (
	schedules    = flag.Int("schedules", 0, "how many schedules for each cell; 0: as many as the CI has time for")
	seed         = flag.Uint64("seed", 1, "of the first schedule of each cell")
	onlyStrategy = flag.String("strategy", "", "only this one; empty: all")
	onlyFault    = flag.String("fault", "", "only this one; empty: all")
)
