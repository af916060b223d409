package redis

import "testing"

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
		for _, what := range []string{"wake", "count"} {
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

func FuzzSideKey(f *testing.F) {
	f.Add("invoice/42", "{a}b")
	f.Add("a}b", "{}")
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" || len(a) > 600 || len(b) > 600 {
			return // no such keys
		}
		sideA, sideB := sideKey(a, "wake"), sideKey(b, "wake")
		if slot(sideA) != slot(a) {
			t.Errorf("sideKey(%q) = %q: slot %d, want %d", a, sideA, slot(sideA), slot(a))
		}
		if a != b && sideA == sideB {
			t.Errorf("%q and %q share the side key %q", a, b, sideA)
		}
	})
}
