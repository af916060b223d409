package backendtest

import (
	"fmt"
	"strings"
)

// byteSentences say that keys and values are bytes: compared as a whole, and nothing in them means anything.
var byteSentences = []sentence{
	{"a value is ours only as a whole, not by its beginning, its end or its letters", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "token-42", x.long)
		for _, near := range []string{
			"token-4", "token", "oken-42", "token-421", "xtoken-42", "TOKEN-42",
			" token-42", "token-42 ", "token-42\n", "",
		} {
			x.notOurs(key, near, l)
		}
		x.wantValue(key, "token-42", l)
		x.remove(key, "token-42")
	}},
	{"a value may hold any text, and no text in it means anything", func(x *fixture) {
		for i, ours := range oddValues {
			key := x.key(fmt.Sprint("k", i))
			l := x.grant(key, ours, x.long)
			x.wantValue(key, ours, l)
			for _, other := range oddValues {
				if other != ours {
					x.notOurs(key, other, l)
				}
			}
			x.wantValue(key, ours, x.grant(key, ours, x.long))
			x.wantValue(key, ours, x.extend(key, ours, 2*x.long))
			x.remove(key, ours)
		}
	}},
	{"a key may hold any text: it is granted, refused, extended and deleted like any other", func(x *fixture) {
		for _, key := range x.oddKeys() {
			l := x.grant(key, "mine", x.long)
			x.wantValue(key, "mine", l)
			x.refuse(key, "theirs", x.long, l)
			x.wantValue(key, "mine", x.extend(key, "mine", 2*x.long))
			x.remove(key, "mine")
			x.wantNothing(key)
		}
	}},
	{"no two keys are the same key", func(x *fixture) {
		keys := x.oddKeys()
		lives := make([]life, len(keys))
		for i, key := range keys {
			lives[i] = x.grant(key, fmt.Sprint("value", i), x.long)
		}
		for i, key := range keys {
			x.wantValue(key, fmt.Sprint("value", i), lives[i])
		}
		for i, key := range keys {
			x.remove(key, fmt.Sprint("value", i)) // and none of those still to come
		}
	}},
}

func (x *fixture) notOurs(key, value string, l life) {
	x.Helper()
	x.refuse(key, value, x.long, l)
	x.extendNot(key, value, 2*x.long)
	x.removeNot(key, value)
}

// oddValues include patterns that match others among them, and texts that are the same number.
var oddValues = []string{
	"token", "tok*", "t?ken", "[a-z]oken", "t.ken", ".*", "*", "%w+", "^token$",
	"1000", "1e3", "1000.0", "0", "00", "nil", "false",
	"two words", "two  words", "line\nbreak", "line\r\nbreak", "tab\t", "naïve ☃", "naive ☃", "🔒",
	"{}", `{"a":1}`, `\`, `\\`, `'`, `"`, "%s", "$1", "--", "]]",
	strings.Repeat("v", 1023) + "x", strings.Repeat("v", 1023) + "y",
}

// oddKeys are all different, some of them only in a place where a store might not look.
func (x *fixture) oddKeys() []string {
	keys := []string{x.key("")}
	for _, name := range []string{
		"k", "K", " ", "two words", "\n", "\r\n", "\t",
		"{", "}", "{}", "}{", "{a}", "{a}b", "a}b", "{{a}}", "{}a", // hash tags, in Redis Cluster
		"*", "?", "@", "[a-z]", ".", "/", ":", "%", "%s", "#", `\`, "'", `"`, "$", "ключ", "鍵", "🔒", "é", "e\u0301",
	} {
		keys = append(keys, x.key(name))
	}
	const longest = 512
	for _, end := range []string{"x", "y"} {
		keys = append(keys, x.own(x.id+strings.Repeat("k", longest-len(x.id)-len(end))+end))
	}
	return keys
}
