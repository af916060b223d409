package backendtest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// listSentences are about a store that is a [backends.Lister].
var listSentences = onlyIf(func(x *fixture) bool { return x.lister != nil }, []sentence{
	{"List tells each key that keeps callers out, as Inspect does, and no other", func(x *fixture) {
		keys := map[string]bool{}
		key := func(name string, told bool) string {
			key := x.own("list" + x.id + name)
			keys[key] = told
			return key
		}
		x.grant(key("held", true), labelled("ann"), x.long)
		x.outside.Set(key("forever", true), "by an operator", 0)
		x.outside.Set(key("cache", true), "an entry", x.long)
		x.outside.SetOther(key("other type", false))
		released, token := key("released", false), labelled("")
		x.grant(released, token, x.long)
		x.remove(released, token)
		ended := key("ended", false)
		l := x.grant(ended, labelled(""), 20*time.Millisecond)
		if x.shared != nil {
			x.admit(key("shared, ended", false), labelled(""), 20*time.Millisecond, backends.Admission{}, 1, -1)
			x.endOf(key("shared, ended", false), life{latest: time.Now().Add(20 * time.Millisecond)})
		}
		x.endOf(ended, l)
		x.grant(x.key("another prefix"), labelled(""), x.long)
		if x.shared != nil {
			x.admit(key("shared", true), labelled("bob"), x.long, backends.Admission{Group: "g"}, 1, -1)
		}
		told := x.list("list"+x.id, backends.MaxPage)
		for key, state := range told {
			if !keys[key] {
				x.Errorf("List tells %q: %+v", key, state)
			}
			if want := x.inspect(key); !reflect.DeepEqual(timeless(state), timeless(want)) {
				x.Errorf("List tells of %q: %+v; Inspect: %+v", key, state, want)
			}
		}
		for key, want := range keys {
			if _, ok := told[key]; want && !ok {
				x.Errorf("List does not tell %q", key)
			}
		}
	}},
	{"List tells a key that is reserved", func(x *fixture) {
		if x.queued == nil {
			return
		}
		x.inTime("List", func(key string) bool {
			token := labelled("")
			x.grant(key, token, x.long)
			x.waitFor(key, "ann")
			l := x.pass(key, token)
			told := x.list(key, backends.MaxPage)
			if !x.lasts(l) {
				return false
			}
			if told[key].Reserved != 1 {
				x.Errorf("List tells %+v; want a reservation", told)
			}
			return true
		})
	}},
	{"the pages together have each key that is held all the time", func(x *fixture) {
		const many = 25
		for i := range many {
			x.grant(x.own(fmt.Sprint("pages", x.id, i)), labelled(""), x.long)
		}
		for _, limit := range []int{7, many, backends.MaxPage} {
			if got := x.list("pages"+x.id, limit); len(got) != many {
				x.Errorf("with a limit of %d, the pages have %d keys; want %d", limit, len(got), many)
			}
		}
	}},
	{"a prefix of List is a text and no pattern", func(x *fixture) {
		for _, prefix := range []string{"*", "?", "[a]", `\`, `\*`, "[", "%", "_", "{", "é", "\xff"} {
			key := x.own(prefix + x.id)
			x.grant(key, labelled(""), x.long)
			for _, other := range []string{"a", "b", "", "ab", "\xfe"} {
				x.grant(x.own(other+x.id+prefix), labelled(""), x.long)
			}
			if got := x.list(prefix+x.id, backends.MaxPage); len(got) != 1 || got[key].Holding != 1 {
				x.Errorf("List of %q tells %+v", prefix+x.id, got)
			}
		}
	}},
	{"List tells nothing that the store writes beside a key", func(x *fixture) {
		for _, key := range []string{x.own("beside" + x.id), x.own("{beside}" + x.id)} {
			token := labelled("")
			if x.numbers != nil {
				if res, err := x.numbers.SetNXNumbered(x.Context(), key, token, x.long, backends.Turn{}); err != nil || !res.OK {
					x.Fatalf("SetNXNumbered = %+v, %v", res, err)
				}
			} else {
				x.grant(key, token, x.long)
			}
			x.waitFor(key, "ann")
			for _, prefix := range append(x.Beside(key), key) {
				for told := range x.list(prefix, backends.MaxPage) {
					if told != key {
						x.Errorf("List of %q tells %q", prefix, told)
					}
				}
			}
		}
	}},
	{"List changes nothing", func(x *fixture) {
		key, token := x.own("still"+x.id), labelled("")
		l := x.grant(key, token, x.long)
		for range 3 {
			x.list("still"+x.id, backends.MaxPage)
		}
		x.wantValue(key, token, l)
	}},
	{"a limit of List from 1 to MaxPage is accepted, any other is a permanent error", func(x *fixture) {
		for limit, good := range map[int]bool{1: true, backends.MaxPage: true, 0: false, -1: false, backends.MaxPage + 1: false} {
			switch _, err := x.lister.List(x.Context(), x.id, "", limit); {
			case good && err != nil:
				x.Errorf("List with a limit of %d: %v", limit, err)
			case !good:
				x.wantPermanent(fmt.Sprintf("List with a limit of %d", limit), err)
			}
		}
	}},
	{"List with a ctx that is done is the error of the ctx", func(x *fixture) {
		ctx, cancel := context.WithCancel(x.Context())
		cancel()
		if page, err := x.lister.List(ctx, x.id, "", 1); !errors.Is(err, context.Canceled) {
			x.Errorf("List = %+v, %v", page, err)
		}
	}},
})

// onlyIf are the sentences, for stores that have what they are about.
func onlyIf(has func(x *fixture) bool, all []sentence) []sentence {
	for i, s := range all {
		all[i].holds = func(x *fixture) {
			if has(x) {
				s.holds(x)
			}
		}
	}
	return all
}

// list reads all pages.
func (x *fixture) list(prefix string, limit int) map[string]backends.State {
	x.Helper()
	all, after := map[string]backends.State{}, ""
	for range 1_000_000 {
		ctx, cancel := x.unhurried()
		page, err := x.lister.List(ctx, prefix, after, limit)
		cancel()
		if err != nil {
			x.Fatalf("List(%.60q, %q, %d): %v", prefix, after, limit, err)
		}
		for _, k := range page.Keys {
			if !strings.HasPrefix(k.Key, prefix) {
				x.Errorf("List of %q tells %q", prefix, k.Key)
			}
			all[k.Key] = k.State
		}
		if after = page.Next; after == "" {
			return all
		}
	}
	x.Fatalf("List has no last page")
	return nil
}

// timeless is s without what changes with time.
func timeless(s backends.State) backends.State {
	s.Holds = slices.Clone(s.Holds)
	for i := range s.Holds {
		s.Holds[i].Left = 0
	}
	return s
}
