package rivals

import "time"

// None is no fault.
var None = Fault{"none", func(*Crew) {}}

// HoldersKilled kills a process that was just granted a lock, and starts it again. It needs
// [Campaign.Processes].
var HoldersKilled = Fault{"holders killed", func(c *Crew) {
	holder := c.Holder()
	c.Kill(holder)
	c.Restart(holder)
}}

// HoldersStopped stops a process that was just granted a lock, for two TTLs. It needs
// [Campaign.Processes].
var HoldersStopped = Fault{"holders stopped", func(c *Crew) {
	holder := c.Holder()
	c.Signal(holder, sigStop)
	time.Sleep(2 * c.TTL)
	c.Signal(holder, sigCont)
}}

// HoldersCutOff lets nothing pass between a rival that was just granted a lock and its servers, for
// two TTLs. What was withheld arrives afterwards.
var HoldersCutOff = Fault{"holders cut off", func(c *Crew) {
	relays := c.Relays(c.Holder())
	for _, relay := range relays {
		relay.BlackHole(true)
	}
	time.Sleep(2 * c.TTL)
	for _, relay := range relays {
		relay.BlackHole(false)
	}
}}

// ConnectionsReset resets all connections of all rivals.
var ConnectionsReset = Fault{"connections reset", func(c *Crew) {
	c.Holder()
	for _, relay := range c.Relays(-1) {
		relay.CutAll()
	}
}}
