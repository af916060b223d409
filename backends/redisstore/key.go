package redisstore

import (
	"strconv"
	"strings"
)

// sideKey names something that belongs to the lock under key (a channel, a counter) so that a Redis
// Cluster keeps it in the same slot, see
// https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags. Different
// keys have different side keys. A key is never empty.
//
//	invoice/42    {invoice/42}:wake    the key becomes the hash tag
//	{a}b          {a}b#wake            the key has one; # since {a} must not share with a
//	a}b           {9371}a}b:wake       the key can't be one: a number in its slot is
func sideKey(key, what string) string {
	switch {
	case hashTag(key) != key:
		return key + "#" + what
	case !strings.ContainsAny(key, "{}"):
		return "{" + key + "}:" + what
	}
	for n, want := 0, slot(key); ; n++ { // about 16,384 steps, for keys that hardly anybody uses
		if tag := strconv.Itoa(n); slot(tag) == want {
			return "{" + tag + "}" + key + ":" + what
		}
	}
}

// sideKeys is sideKey for two things, in one piece of memory.
func sideKeys(key, one, other string) (string, string) {
	var both string
	switch {
	case hashTag(key) != key:
		both = key + "#" + one + key + "#" + other
	case !strings.ContainsAny(key, "{}"):
		both = "{" + key + "}:" + one + "{" + key + "}:" + other
	default:
		return sideKey(key, one), sideKey(key, other)
	}
	n := (len(both) + len(one) - len(other)) / 2
	return both[:n], both[n:]
}

func wakeChannel(key string) string { return sideKey(key, "wake") }

// queueKey is the key of a queue. It has a NUL, which no key of a lock has, so they never collide.
func queueKey(key string) string { return sideKey(key, "\x00queue") }

// queueAndChannel is queueKey and wakeChannel. Each pair of Lock and Unlock needs both.
func queueAndChannel(key string) (queue, channel string) { return sideKeys(key, "\x00queue", "wake") }

// hashTag is the part of key that decides its slot: what stands between the first { and the next },
// or all of it.
func hashTag(key string) string {
	if _, rest, found := strings.Cut(key, "{"); found {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			return tag
		}
	}
	return key
}

// slot is the CRC16 (XMODEM) of the hash tag modulo the number of slots.
func slot(key string) int {
	var crc uint16
	for _, b := range []byte(hashTag(key)) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}
