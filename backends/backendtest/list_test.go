package backendtest

import (
	"context"
	"path"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

// badList replaces List.
func badList(f func(m *memory.Store, ctx context.Context, prefix, after string, limit int) (backends.Page, error)) func(*memory.Store) InspectedStore {
	return func(m *memory.Store) InspectedStore {
		return inspectDouble{Store: m, list: func(ctx context.Context, prefix, after string, limit int) (backends.Page, error) {
			return f(m, ctx, prefix, after, limit)
		}}
	}
}

// listing changes what List finds.
func listing(change func(p *backends.Page)) func(*memory.Store) InspectedStore {
	return badList(func(m *memory.Store, ctx context.Context, prefix, after string, limit int) (backends.Page, error) {
		page, err := m.List(ctx, prefix, after, limit)
		change(&page)
		return page, err
	})
}

const (
	listTells = "List tells each key that keeps callers out, as Inspect does, and no other"
	listBound = "a limit of List from 1 to MaxPage is accepted, any other is a permanent error"
)

var listDoubles = []broken[InspectedStore]{
	{
		bug: "List leaves out what has no expiry", breaks: listTells,
		store: listing(func(p *backends.Page) {
			var rest []backends.KeyState
			for _, k := range p.Keys {
				if !k.Foreign {
					rest = append(rest, k)
				}
			}
			p.Keys = rest
		}),
	},
	{
		bug: "List tells free keys", breaks: listTells,
		store: badList(func(m *memory.Store, ctx context.Context, prefix, after string, limit int) (backends.Page, error) {
			page, err := m.List(ctx, prefix, after, limit)
			page.Keys = append(page.Keys, backends.KeyState{Key: prefix + "released"})
			return page, err
		}),
	},
	{
		bug: "List tells keys alone", breaks: listTells,
		store: listing(func(p *backends.Page) {
			for i := range p.Keys {
				p.Keys[i].State = backends.State{Holding: 1}
			}
		}),
	},
	{
		bug: "List tells what has ended", breaks: listTells,
		store: badList(func(m *memory.Store, ctx context.Context, prefix, after string, limit int) (backends.Page, error) {
			page, err := m.List(ctx, prefix, after, limit)
			page.Keys = append(page.Keys, backends.KeyState{Key: prefix + "ended"})
			return page, err
		}),
	},
	{
		bug: "List tells holds alone", breaks: "List tells a key that is reserved",
		store: listing(func(p *backends.Page) {
			p.Keys = slices.DeleteFunc(p.Keys, func(k backends.KeyState) bool { return k.Holding == 0 && !k.Foreign })
		}),
	},
	{
		bug: "List has one page", breaks: "the pages together have each key that is held all the time",
		store: listing(func(p *backends.Page) { p.Next = "" }),
	},
	{
		bug: "a page begins with the key that is behind the last", breaks: "the pages together have each key that is held all the time",
		store: badList(func(m *memory.Store, ctx context.Context, prefix, after string, limit int) (backends.Page, error) {
			page, err := m.List(ctx, prefix, after, limit)
			if after != "" && len(page.Keys) > 0 {
				page.Keys = page.Keys[1:]
			}
			return page, err
		}),
	},
	{
		bug: "a prefix is a pattern", breaks: "a prefix of List is a text and no pattern",
		store: badList(func(m *memory.Store, ctx context.Context, prefix, after string, limit int) (backends.Page, error) {
			page, err := m.List(ctx, "", after, limit)
			var rest []backends.KeyState
			for _, k := range page.Keys {
				if ok, _ := path.Match(prefix+"*", k.Key); ok {
					rest = append(rest, k)
				}
			}
			page.Keys = rest
			return page, err
		}),
	},
	{
		bug: "a queue is told as a lock", breaks: "List tells nothing that the store writes beside a key",
		store: listing(func(p *backends.Page) {
			for _, k := range p.Keys {
				if k.Waiting > 0 {
					p.Keys = append(p.Keys, backends.KeyState{Key: k.Key + ":queue"})
				}
			}
		}),
	},
	{
		bug: "List makes what it finds live longer", breaks: "List changes nothing",
		store: badList(func(m *memory.Store, ctx context.Context, prefix, after string, limit int) (backends.Page, error) {
			page, err := m.List(ctx, prefix, after, limit)
			for _, k := range page.Keys {
				value, _, _ := m.Get(k.Key)
				m.Set(k.Key, value, 30*time.Second)
			}
			return page, err
		}),
	},
	{
		bug: "any limit is taken", breaks: listBound,
		store: badList(func(m *memory.Store, ctx context.Context, prefix, after string, limit int) (backends.Page, error) {
			return m.List(ctx, prefix, after, min(max(limit, 1), backends.MaxPage))
		}),
	},
	{
		bug: "a large limit is refused", breaks: listBound,
		store: badList(func(m *memory.Store, ctx context.Context, prefix, after string, limit int) (backends.Page, error) {
			if limit > 100 {
				limit = 0
			}
			return m.List(ctx, prefix, after, limit)
		}),
	},
	{
		bug: "List ignores its ctx", breaks: "List with a ctx that is done is the error of the ctx",
		store: badList(func(m *memory.Store, _ context.Context, prefix, after string, limit int) (backends.Page, error) {
			return m.List(background, prefix, after, limit)
		}),
	},
	{
		bug: "a list is Foreign", breaks: listTells,
		store: badList(func(m *memory.Store, ctx context.Context, prefix, after string, limit int) (backends.Page, error) {
			page, err := m.List(ctx, prefix, after, limit)
			page.Keys = append(page.Keys, backends.KeyState{Key: prefix + "other type", State: backends.State{Foreign: true}})
			return page, err
		}),
	},
}
