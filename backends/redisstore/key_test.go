package redisstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestSlotIsThatOfTheClusterSpecification(t *testing.T) {
	// from the specification, and CLUSTER KEYSLOT of a redis-server 7.0.15
	for key, want := range map[string]int{
		"123456789": 12739, "foo": 12182, "{foo}": 12182, "foo{}{bar}": 8363, "foo{{bar}}zap": 4015,
		"foo{bar}{zap}": 5061, "bar": 5061, "": 0,
	} {
		if got := slot(key); got != want {
			t.Errorf("slot(%q) = %d, want %d", key, got, want)
		}
	}
}

func TestSideKeysShareTheSlotAndDiffer(t *testing.T) {
	keys := []string{"invoice/42", "{invoice/42}", "a", "{a}", "{a}:wake", "{a}#wake", "{a}b", "b{a}", "{}", "{}a", "}{", "a}b", "a{b", "{", "}", "{a", "a}", "{{a}}", "{}{a}", "🔒", " "}
	seen := map[string]string{}
	for _, key := range keys {
		for _, what := range []string{"wake", "\x00queue", "\x00fence"} {
			side := sideKey(key, what)
			if slot(side) != slot(key) {
				t.Errorf("sideKey(%q, %s) = %q is in slot %d, the key in %d", key, what, side, slot(side), slot(key))
			}
			if other, taken := seen[side]; taken {
				t.Errorf("%q and %q share the side key %q", key, other, side)
			}
			seen[side] = key
		}
	}
}

func TestTwoSideKeysAtOnceAreTheSameAsEachAlone(t *testing.T) {
	for _, key := range []string{"invoice/42", "{a}b", "a}b", "{", "🔒"} {
		if queue, channel := queueAndChannel(key); queue != queueKey(key) || channel != wakeChannel(key) {
			t.Errorf("%q: the queue is %q, the channel %q; want %q and %q", key, queue, channel, queueKey(key), wakeChannel(key))
		}
	}
}

// FuzzSideKey: what belongs to a lock is in its slot, and belongs to no other lock and is none.
func FuzzSideKey(f *testing.F) {
	f.Add("invoice/42", "{a}b")
	f.Add("a}b", "{}")
	f.Add("{a}", "{a}:wake")
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" || len(a) > 600 || len(b) > 600 || strings.Contains(a+b, "\x00") {
			return // no such keys
		}
		seen := map[string]string{}
		for _, key := range slices.Compact([]string{a, b}) {
			for what, side := range map[string]string{"wake": wakeChannel(key), "queue": queueKey(key), "fence": fenceKey(key)} {
				if slot(side) != slot(key) {
					t.Errorf("%s of %q is %q: slot %d, want %d", what, key, side, slot(side), slot(key))
				}
				if other, taken := seen[side]; taken {
					t.Errorf("%s of %q is %q, and so is %s", what, key, side, other)
				}
				seen[side] = fmt.Sprintf("%s of %q", what, key)
				if what != "wake" && (side == a || side == b) { // channels are no keys
					t.Errorf("%s of %q is %q, and so is a lock", what, key, side)
				}
			}
		}
	})
}
