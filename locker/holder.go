package locker

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// WithHolder gives the locks of a Client a label that everybody may read, such as "api-7f9c/4711":
// the host and the process, or a job. Another Client finds it in
// [HeldError.Holder], and a [backends.Inspector] in what it returns. It costs no key and no command:
// it stands before the secret part of each token, and ends with the lock.
//
// The label says who took the lock, it does not prove it: each program that can write to the store
// can write any label. It has at most [MaxHolderLength] bytes of printable UTF-8, does not begin or
// end with a space, does not begin with "lockstep:", and has no @, which separates names in a queue.
//
// [backends.Inspector]: https://pkg.go.dev/github.com/lockstep-go/lockstep/backends#Inspector
func WithHolder(label string) ClientOption {
	return clientOption(func(c *config) {
		switch {
		case label == "":
			c.refuse(outcome.Invalidf("holder is empty; leave locker.WithHolder out"))
		case len(label) > MaxHolderLength:
			c.refuse(outcome.Invalidf("holder of %d bytes is over the limit of %d", len(label), MaxHolderLength))
		case !utf8.ValidString(label) || strings.ContainsFunc(label, func(r rune) bool { return !unicode.IsPrint(r) }):
			c.refuse(outcome.Invalidf("holder %q is not printable UTF-8", label))
		case strings.TrimSpace(label) != label:
			c.refuse(outcome.Invalidf("holder %q begins or ends with a space", label))
		case strings.Contains(label, "@"):
			c.refuse(outcome.Invalidf("holder %q has an @, which queues use themselves", label))
		case strings.HasPrefix(label, "lockstep:"):
			c.refuse(outcome.Invalidf("holder %q begins with \"lockstep:\", which the stores use themselves", label))
		}
		c.holder = holder(label)
	})
}

// MaxHolderLength is the longest label of [WithHolder], in bytes.
const MaxHolderLength = 100

// holder is the label of a Client; empty: none.
type holder string

// token is a new Token with the label. [backends.HolderOf] reads it.
//
// [backends.HolderOf]: https://pkg.go.dev/github.com/lockstep-go/lockstep/backends#HolderOf
func (h holder) token() string {
	if h == "" {
		return contract.NewToken()
	}
	return string(h) + " " + contract.NewToken()
}
