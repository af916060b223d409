package backendtest

import (
	"context"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var legacyBitDoubles = []broken[backends.LegacyStore]{
	{
		bug:    "GetBit creates",
		breaks: "GetBit of a free key is off, and creates nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), getBit: func(ctx context.Context, key string, offset uint32) (bool, error) {
				_, _ = m.Legacy().SetNXForever(ctx, key, "")
				return m.Legacy().GetBit(ctx, key, offset)
			}}
		},
	},
	{
		bug:    "SetBit returns the new bit",
		breaks: "SetBit sets a bit and returns the old one",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				setBit: func(ctx context.Context, key string, offset uint32, on bool) (bool, error) {
					_, err := m.Legacy().SetBit(ctx, key, offset, on)
					return on, err
				},
			}
		},
	},
	{
		bug:    "SetBit only ever sets",
		breaks: "SetBit sets a bit and returns the old one",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				setBit: func(ctx context.Context, key string, offset uint32, on bool) (bool, error) {
					return m.Legacy().SetBit(ctx, key, offset, true)
				},
			}
		},
	},
	{
		bug:    "bits of a byte are one",
		breaks: "every bit is one of its own",
		store:  bitsAt(func(offset uint32) uint32 { return offset / 8 }),
	},
	{
		bug:    "bits that are 17 apart are one",
		breaks: "every bit is one of its own",
		store:  bitsAt(func(offset uint32) uint32 { return offset % 17 }),
	},
	{
		bug:    "bits lie the lowest first",
		breaks: "bit n is in byte n/8 of the value, the highest bit first",
		store:  bitsAt(func(offset uint32) uint32 { return offset ^ 7 }),
	},
	{
		bug:    "SetBit takes the expiry away",
		breaks: "SetBit leaves the expiry alone",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				setBit: func(ctx context.Context, key string, offset uint32, on bool) (bool, error) {
					was, err := m.Legacy().SetBit(ctx, key, offset, on)
					value, _, _ := m.Get(key)
					m.Set(key, value, 0)
					return was, err
				},
			}
		},
	},
}

// bitsAt is a store that has bits where they do not belong.
func bitsAt(mistake func(offset uint32) uint32) func(*memory.Store) backends.LegacyStore {
	return func(m *memory.Store) backends.LegacyStore {
		return legacyDouble{
			LegacyStore: m.Legacy(),
			getBit: func(ctx context.Context, key string, offset uint32) (bool, error) {
				return m.Legacy().GetBit(ctx, key, mistake(offset))
			},
			setBit: func(ctx context.Context, key string, offset uint32, on bool) (bool, error) {
				return m.Legacy().SetBit(ctx, key, mistake(offset), on)
			},
		}
	}
}
