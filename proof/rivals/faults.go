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

// ServersKilled kills a server, and starts it again.
func ServersKilled(server interface {
	Kill()
	Restart()
}) Fault {
	return Fault{"servers killed", func(c *Crew) {
		c.Holder()
		server.Kill()
		server.Restart()
	}}
}

// ServersStopped stops a server for three TTLs.
func ServersStopped(server interface {
	Pause()
	Resume()
}) Fault {
	return Fault{"servers stopped", func(c *Crew) {
		c.Holder()
		server.Pause()
		time.Sleep(3 * c.TTL)
		server.Resume()
	}}
}

// ServerClockAhead moves the clock of a server by a minute each time.
func ServerClockAhead(server interface{ MoveClock(by time.Duration) }) Fault {
	return clockMoved("server clock ahead", time.Minute, server.MoveClock)
}

// ServerClockBack moves the clock of a server back by a minute each time.
func ServerClockBack(server interface{ MoveClock(by time.Duration) }) Fault {
	return clockMoved("server clock back", -time.Minute, server.MoveClock)
}

func clockMoved(name string, step time.Duration, move func(by time.Duration)) Fault {
	var by time.Duration // from the true time
	return Fault{name, func(c *Crew) {
		c.Holder()
		by += step
		move(by)
	}}
}

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
