package backendtest

import (
	"path"
	"strconv"
	"strings"
)

var byteDoubles = []brokenStore{
	{
		bug:    "a beginning of the value will do",
		breaks: "a value is ours only as a whole, not by its beginning, its end or its letters",
		store:  badMatch(strings.HasPrefix),
	},
	{
		bug:    "more than the value will do",
		breaks: "a value is ours only as a whole, not by its beginning, its end or its letters",
		store:  badMatch(func(present, value string) bool { return strings.HasPrefix(value, present) }),
	},
	{
		bug:    "an end of the value will do",
		breaks: "a value is ours only as a whole, not by its beginning, its end or its letters",
		store:  badMatch(strings.HasSuffix),
	},
	{
		bug:    "letters are the same in either case",
		breaks: "a value is ours only as a whole, not by its beginning, its end or its letters",
		store:  badMatch(strings.EqualFold),
	},
	{
		bug:    "a value is compared as a pattern",
		breaks: "a value may hold any text, and no text in it means anything",
		store: badMatch(func(present, value string) bool {
			matches, _ := path.Match(value, present)
			return matches
		}),
	},
	{
		bug:    "a value is compared as a number",
		breaks: "a value may hold any text, and no text in it means anything",
		store: badMatch(func(present, value string) bool {
			a, errA := strconv.ParseFloat(present, 64)
			b, errB := strconv.ParseFloat(value, 64)
			return errA == nil && errB == nil && a == b
		}),
	},
	{
		bug:    "a long value is compared by its beginning",
		breaks: "a value may hold any text, and no text in it means anything",
		store: badMatch(func(present, value string) bool {
			return len(present) > 1000 && len(value) > 1000 && present[:1000] == value[:1000]
		}),
	},
	{
		bug:    "a key is trimmed",
		breaks: "a key may hold any text: it is granted, refused, extended and deleted like any other",
		store:  badKeys(strings.TrimSpace),
	},
	{
		bug:    "a key is trimmed, so two are one",
		breaks: "no two keys are the same key",
		store:  badKeys(strings.TrimSpace),
	},
	{
		bug:    "a key is its hash tag",
		breaks: "no two keys are the same key",
		store: badKeys(func(key string) string {
			if _, rest, ok := strings.Cut(key, "{"); ok {
				if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
					return tag
				}
			}
			return key
		}),
	},
	{
		bug:    "a long key is cut",
		breaks: "no two keys are the same key",
		store:  badKeys(func(key string) string { return key[:min(len(key), 511)] }),
	},
	{
		bug:    "a key is in lower case",
		breaks: "no two keys are the same key",
		store:  badKeys(strings.ToLower),
	},
}
