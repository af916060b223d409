package backendtest

var bitSentences = []sentence{
	{"GetBit of a free key is off, and creates nothing", func(x *fixture) {
		key := x.key("k")
		x.bit(key, 0, false)
		x.bit(key, 1000, false)
		x.wantNothing(key)
		x.hasExpired(key)
		x.bit(key, 0, false)
	}},
	{"SetBit sets a bit and returns the old one", func(x *fixture) {
		key := x.key("k")
		for _, offset := range []uint32{0, 7, 8, 1000} {
			x.setBit(key, offset, true, false)
			x.bit(key, offset, true)
			x.setBit(key, offset, true, true)
			x.setBit(key, offset, false, true)
			x.bit(key, offset, false)
			x.setBit(key, offset, false, false)
			x.setBit(key, offset, true, false)
		}
	}},
	{"every bit is one of its own", func(x *fixture) {
		key := x.key("k")
		for _, offset := range []uint32{17, 3, 0} {
			x.setBit(key, offset, true, false)
		}
		for offset := range uint32(30) {
			x.bit(key, offset, offset == 17 || offset == 3 || offset == 0)
		}
	}},
	{"bit n is in byte n/8 of the value, the highest bit first", func(x *fixture) {
		key := x.key("k")
		x.setBit(key, 0, true, false)
		x.wantForever(key, "\x80")
		x.setBit(key, 7, true, false)
		x.wantForever(key, "\x81")
		x.setBit(key, 18, true, false)
		x.wantForever(key, "\x81\x00\x20")
		x.setBit(key, 0, false, true)
		x.wantForever(key, "\x01\x00\x20")
		x.outside.Set(key, "a", 0) // 0x61
		for offset, on := range []bool{false, true, true, false, false, false, false, true, false} {
			x.bit(key, uint32(offset), on)
		}
	}},
	{"SetBit leaves the expiry alone", func(x *fixture) {
		key := x.key("k")
		l := x.put(key, "\x80", x.long)
		x.setBit(key, 0, false, true)
		x.setBit(key, 9, true, false)
		x.wantValue(key, "\x00\x40", l)
	}},
}
