// Lockstep runs a command under a distributed lock, and shows who holds which lock.
//
//	export LOCKSTEP_STORE=redis://localhost:6379
//	lockstep run -n nightly-report -- ./report
//	lockstep inspect nightly-report
//
// `lockstep help` lists all commands. To build it with a store of your own, copy this file and add
// a command.Family. Without a Page there is no `lockstep serve`.
package main

import (
	"github.com/lockstep-go/lockstep/cmd/lockstep/command"
	"github.com/lockstep-go/lockstep/cmd/lockstep/stores"
)

func main() {
	command.Main(command.Program{Page: page, Stores: []command.Family{
		stores.Redis(),
		stores.PostgreSQL(),
		stores.MySQL(),
		stores.SQLite(),
		stores.Etcd(),
		stores.NATS(),
	}})
}
