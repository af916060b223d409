package backendtest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var fencedRaiseDoubles = []broken[backends.FencedStore]{
	{
		bug:    "RaiseFence says that it landed, and does nothing",
		breaks: "RaiseFence by the holder lands, and the next number is greater",
		store: badRaise(func(*memory.Store) raiseFunc {
			return func(context.Context, string, string, uint64) (bool, error) { return true, nil }
		}),
	},
	{
		bug:    "RaiseFence lands only above the present number",
		breaks: "RaiseFence to the present number lands",
		store:  landingIf(func(held bool, last, to uint64) bool { return held && last < to }),
	},
	{
		bug:    "RaiseFence lands once",
		breaks: "RaiseFence done again says the same",
		store:  landingIf(func(held bool, last, to uint64) bool { return held && last < to }),
	},
	{
		bug:    "RaiseFence lowers",
		breaks: "RaiseFence never lowers a number",
		store:  landingIf(func(held bool, _, _ uint64) bool { return held }),
	},
	{
		bug:    "RaiseFence compares texts",
		breaks: "RaiseFence never lowers a number",
		store:  landingIf(func(held bool, last, to uint64) bool { return held && fmt.Sprint(last) <= fmt.Sprint(to) }),
	},
	{
		bug:    "an ownership keeps its first number",
		breaks: "a repeated SetNXFenced has the number that it was raised to",
		store: badFenced(func(m *memory.Store) fencedFunc {
			given := make(map[string]uint64)
			return func(ctx context.Context, key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
				_, _, held := m.Get(key)
				res, err := draw(ctx, m, key, value, ttl, n)
				if held && res.OK {
					res.Fence = given[key]
				}
				given[key] = res.Fence
				return res, err
			}
		}),
	},
	{
		bug:    "RaiseFence raises only what is there",
		breaks: "RaiseFence gives a number to a key that has none",
		store:  landingIf(func(held bool, last, to uint64) bool { return held && last > 0 && last <= to }),
	},
	{
		bug:    "numbers have 14 digits",
		breaks: "numbers are exact below 2^53",
		store: misnumbered(func(_ *memory.Store, _ string, _ numbering, _ bool, right uint64) uint64 {
			return rounded(right)
		}),
	},
	{
		bug:    "RaiseFence compares the first 14 digits",
		breaks: "numbers are exact below 2^53",
		store:  landingIf(func(held bool, last, to uint64) bool { return held && rounded(last) <= rounded(to) }),
	},
	{
		bug:    "RaiseFence raises to any number",
		breaks: "RaiseFence to 2^53 or more is refused and changes nothing",
		store:  landingIf(func(held bool, last, to uint64) bool { return held && last <= to }),
	},
	{
		bug:    "RaiseFence ignores the value",
		breaks: "RaiseFence with another value does not land and changes nothing",
		store:  landingIf(func(_ bool, last, to uint64) bool { return last <= to }),
	},
	{
		bug:    "RaiseFence says that it did not land, but raises",
		breaks: "RaiseFence with another value does not land and changes nothing",
		store: badRaise(func(m *memory.Store) raiseFunc {
			return func(ctx context.Context, key, value string, to uint64) (bool, error) {
				present, _, _ := m.Get(key)
				_, _ = m.RaiseFence(ctx, key, present, to)
				return false, nil
			}
		}),
	},
	{
		bug:    "RaiseFence ignores that nobody holds the key",
		breaks: "RaiseFence after a release does not land",
		store:  landingIf(func(_ bool, last, to uint64) bool { return last <= to }),
	},
	{
		bug:    "RaiseFence ignores that the value has expired",
		breaks: "RaiseFence after an expiry does not land",
		store:  landingIf(func(_ bool, last, to uint64) bool { return last <= to }),
	},
	{
		bug:    "RaiseFence gives the value a ttl",
		breaks: "RaiseFence leaves the value and its expiry alone",
		store: badRaise(func(m *memory.Store) raiseFunc {
			return func(ctx context.Context, key, value string, to uint64) (bool, error) {
				m.Set(key, value, time.Hour)
				return m.RaiseFence(ctx, key, value, to)
			}
		}),
	},
	{
		bug:    "RaiseFence takes a value of another type for another value",
		breaks: "RaiseFence of a value of another type is an error that matches ErrWrongType",
		store: badRaise(func(m *memory.Store) raiseFunc {
			return func(ctx context.Context, key, value string, to uint64) (bool, error) {
				landed, err := m.RaiseFence(ctx, key, value, to)
				if errors.Is(err, backends.ErrWrongType) {
					err = nil
				}
				return landed, err
			}
		}),
	},
	{
		bug:    "RaiseFence leaves open whether a value of another type has changed",
		breaks: "RaiseFence of a value of another type is an error that matches ErrWrongType",
		store: badRaise(func(m *memory.Store) raiseFunc {
			return func(ctx context.Context, key, value string, to uint64) (bool, error) {
				landed, err := m.RaiseFence(ctx, key, value, to)
				if errors.Is(err, backends.ErrWrongType) {
					err = backends.ErrWrongType
				}
				return landed, err
			}
		}),
	},
	{
		bug:    "RaiseFence looks at its ctx too late",
		breaks: "RaiseFence with a ctx that is already done returns its error and changes nothing",
		store: badRaise(func(m *memory.Store) raiseFunc {
			return func(ctx context.Context, key, value string, to uint64) (bool, error) {
				landed, err := m.RaiseFence(background, key, value, to)
				return landed, errors.Join(err, ctx.Err())
			}
		}),
	},
}

func rounded(number uint64) uint64 {
	f, _ := strconv.ParseFloat(strconv.FormatFloat(float64(number), 'g', 14, 64), 64)
	return uint64(f)
}
