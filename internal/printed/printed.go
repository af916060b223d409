// Package printed prints keys, numbers of things, and values that hide a secret.
package printed

import (
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// Longest is the longest key in bytes that is printed whole.
const Longest = 512

// Key is how a key is printed. One over Longest is cut to its first 64 bytes.
func Key(key string) string {
	if len(key) <= Longest {
		return key
	}
	cut := 64
	for cut > 64-utf8.UTFMax && !utf8.RuneStart(key[cut]) {
		cut--
	}
	return key[:cut] + "…"
}

// Count is a number of things: "1 replica", "2 replicas".
func Count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return strconv.Itoa(n) + " " + thing
}

// InUse says that a pool has no free connection, of n.
func InUse(n int) string {
	if n == 1 {
		return "the only connection of the pool is in use"
	}
	return "all " + strconv.Itoa(n) + " connections of the pool are in use"
}

// Format prints the String or GoString of a value, and never its fields.
func Format(s fmt.State, verb rune, v interface {
	fmt.Stringer
	fmt.GoStringer
}) {
	text := v.String()
	if verb == 'v' && s.Flag('#') {
		text = v.GoString()
	}
	_, _ = io.WriteString(s, text) // fmt has nowhere to tell of an error
}
