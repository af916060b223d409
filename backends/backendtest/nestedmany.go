package backendtest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// oddTokens include what a store might call something of its own in the same place.
var oddTokens = append(slices.Clone(oddValues),
	"owner", "Owner", "_owner", "@owner", ":owner", "lockstep:owner", "o", "holds", "count", "hold:token", "hold:", "token:",
	"expires", "deadline", "ttl", "-1", "1e309", "nan", "inf", "1.5", "9007199254740993", "null", "true", "ann",
	"token ", " token", "Token",
)

var nestedByteSentences = []sentence{
	{"a token may hold any text: each is a hold of its own, and no text in it means anything", func(x *fixture) {
		key := x.key("k")
		for i, token := range oddTokens {
			x.enter(key, "ann", token, x.long, i+1)
		}
		for _, token := range oddTokens {
			x.enter(key, "ann", token, x.long, len(oddTokens))
			x.renew(key, token, x.long)
			x.renewNot(key, token+"~", x.long)
			x.leaveNot(key, "~"+token)
		}
		for i, token := range oddTokens {
			x.leave(key, token)
			x.leaveNot(key, token)
			if i+1 < len(oddTokens) {
				x.enter(key, "ann", oddTokens[i+1], x.long, len(oddTokens)-i-1)
			}
		}
		x.wantNothing(key)
	}},
	{"an owner may hold any text, and is the same only as a whole", func(x *fixture) {
		for i, owner := range oddTokens {
			key := x.key(fmt.Sprint("k", i))
			l := x.enter(key, owner, "one", 2*x.long, 1)
			for next := 1; next < 6; next++ { // those that look alike are together
				x.enterNot(key, oddTokens[(i+next)%len(oddTokens)], "two", x.long, l)
			}
			x.enterNot(key, owner+" ", "two", x.long, l)
			x.enterNot(key, owner[1:], "two", x.long, l)
			x.enter(key, owner, "two", x.long, 2)
			x.leave(key, "one")
			x.leave(key, "two")
			x.wantNothing(key)
		}
	}},
	{"no two keys are the same key", func(x *fixture) {
		keys := x.oddKeys()
		for i, key := range keys {
			x.enter(key, fmt.Sprint("owner", i), "one", x.long, 1)
			x.enter(key, fmt.Sprint("owner", i), "two", x.long, 2)
		}
		for _, key := range keys {
			x.renew(key, "one", 2*x.long)
			x.leave(key, "one")
			x.leave(key, "two")
			x.wantNothing(key)
		}
	}},
}

var nestedConcurrencySentences = []sentence{
	{"of many owners that enter at once exactly one is granted", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			var winners atomic.Int64
			together(callers, func(i int) {
				owner := fmt.Sprint("owner", i)
				if i%2 == 0 {
					owner = ""
				}
				res, err := x.nested.Enter(x.Context(), key, owner, fmt.Sprint("token", i), x.long)
				if err != nil {
					x.Errorf("Enter: %v", err)
				}
				if res.OK {
					winners.Add(1)
				}
			})
			if n := winners.Load(); n != 1 {
				x.Fatalf("%d of %d owners were granted the key", n, callers)
			}
		}
	}},
	{"holds of one owner that enter at once are all counted", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			var mu sync.Mutex
			var counts []int
			together(callers, func(i int) {
				res, err := x.nested.Enter(x.Context(), key, "ann", fmt.Sprint("token", i), x.long)
				if err != nil || !res.OK {
					x.Errorf("Enter = %+v, %v; want it granted", res, err)
				}
				mu.Lock()
				defer mu.Unlock()
				counts = append(counts, res.Holds)
			})
			slices.Sort(counts)
			for i, n := range counts {
				if n != i+1 {
					x.Fatalf("the counts of holds were %v; want each from 1 to %d", counts, callers)
				}
			}
		}
	}},
	{"of many Leave of one hold at once exactly one says true", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			x.enter(key, "ann", "one", x.long, 1)
			var left atomic.Int64
			together(callers, func(int) {
				ok, err := x.nested.Leave(x.Context(), key, "one")
				if err != nil {
					x.Errorf("Leave: %v", err)
				}
				if ok {
					left.Add(1)
				}
			})
			if n := left.Load(); n != 1 {
				x.Fatalf("%d of %d callers ended the hold", n, callers)
			}
		}
	}},
	{"holds that leave while others enter neither take them along nor remain", func(x *fixture) {
		for round := range 2 {
			key := x.key(fmt.Sprint("round", round))
			for i := range callers / 2 {
				x.enter(key, "ann", fmt.Sprint("old", i), x.long, i+1)
			}
			together(callers, func(i int) {
				if i%2 == 0 {
					if ok, err := x.nested.Leave(x.Context(), key, fmt.Sprint("old", i/2)); err != nil || !ok {
						x.Errorf("Leave = %v, %v; want true", ok, err)
					}
					return
				}
				res, err := x.nested.Enter(x.Context(), key, "ann", fmt.Sprint("new", i/2), x.long)
				if err != nil || !res.OK {
					x.Errorf("Enter = %+v, %v; want it granted", res, err)
				}
			})
			for i := range callers / 2 {
				x.enter(key, "ann", fmt.Sprint("new", i), x.long, callers/2)
			}
			for i := range callers / 2 {
				x.leave(key, fmt.Sprint("new", i))
			}
			x.wantNothing(key)
		}
	}},
}
