package backendtest

import "time"

var queuedGoneSentences = []sentence{
	{"a waiter whose watch ends gives up his place, and is woken no more", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 3)
		all[0].goes()
		x.eventually("the place is given up", life{latest: time.Now()}, func() bool { return x.ask(all[2], false).Position == 2 })
		told := all[0].count.Load()
		x.pass(key, "before")
		x.wantTurn(all[1])
		x.askUntilGranted(all[1], true)
		if n := all[0].count.Load() - told; n != 0 {
			x.Errorf("a waiter who has gone was woken %d times", n)
		}
	}},
	{"a waiter whose watch has ended is passed over at once", func(x *fixture) {
		x.inTime("the second is granted the key", func(key string) bool {
			x.grant(key, "before", x.long)
			all := x.line(key, 3)
			all[0].goes()
			reserved := x.pass(key, "before")
			x.wantTurn(all[1])
			return x.ask(all[1], true).OK && x.lasts(reserved)
		})
	}},
	{"what is reserved for a waiter goes to the next at once when his watch ends", func(x *fixture) {
		x.inTime("the second is granted the key", func(key string) bool {
			x.grant(key, "before", x.long)
			all := x.line(key, 3)
			reserved := x.pass(key, "before")
			x.wantTurn(all[0])
			all[0].goes()
			for {
				switch granted := x.ask(all[1], true).OK; {
				case !x.lasts(reserved):
					return false
				case granted:
					return true
				}
				x.wantTurn(all[1])
			}
		})
	}},
	{"what is reserved for the last of a queue is free at once when his watch ends, and those who watch are woken", func(x *fixture) {
		x.inTime("the key is free", func(key string) bool {
			x.grant(key, "before", x.long)
			only, others := x.line(key, 1)[0], x.watch(x.Context(), key)
			reserved := x.pass(key, "before")
			x.wantTurn(only)
			only.goes()
			x.eventually("the key is free", reserved, func() bool {
				_, _, held := x.outside.Get(key)
				return !held
			})
			if !x.lasts(reserved) {
				return false
			}
			x.wantWake(others)
			return true
		})
	}},
	{"whoever is next by then is woken when a reservation was not taken", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 3)
		reserved := x.pass(key, "before")
		all[1].goes() // who may have been told to look
		x.wantALook(all[2], reserved)
		x.askUntilGranted(all[2], true)
	}},
}
