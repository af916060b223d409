package strategies

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// openError says that a store could not be opened. It hides user and password of the address, also
// in the text of the program's own error.
type openError struct {
	backend, addr string
	err           error
}

func (e *openError) Error() string {
	return fmt.Sprintf("lockstep: choose: open %s at %q: %s", e.backend, hide(e.addr), e.cause())
}

// Unwrap returns the program's error unchanged: its text may contain the password.
func (e *openError) Unwrap() error { return e.err }

func (e *openError) cause() string {
	_, user, _ := split(e.addr)
	if user == "" {
		return e.err.Error()
	}
	if parsing := (*url.Error)(nil); errors.As(e.err, &parsing) && parsing.Op == "parse" {
		return "it is not a URL" // the error quotes a part of the URL, which may be a part of the password
	}
	text := e.err.Error()
	for _, form := range forms {
		text = strings.ReplaceAll(text, form(e.addr), form(hide(e.addr)))
	}
	_, password, _ := strings.Cut(user, ":")
	plain, _ := url.PathUnescape(password)
	for _, secret := range []string{user, password, plain} {
		for _, form := range forms {
			if secret != "" {
				text = strings.ReplaceAll(text, form(secret), hidden)
			}
		}
	}
	return text
}

// forms are the ways in which an error may write a string: plain, quoted as in Go, escaped as in a
// URL.
var forms = []func(string) string{
	func(s string) string { return s },
	func(s string) string { s = strconv.Quote(s); return s[1 : len(s)-1] },
	func(s string) string { return strings.TrimPrefix(url.UserPassword("", s).String(), ":") },
}

const hidden = "xxxxx"

// hide replaces user and password of an address.
func hide(addr string) string {
	scheme, user, rest := split(addr)
	if user != "" {
		user = hidden + "@"
	}
	return scheme + user + rest
}

// split cuts at the last @: a password may contain an @ that is not escaped.
func split(addr string) (scheme, user, rest string) {
	if i := strings.Index(addr, "://"); i >= 0 {
		scheme, addr = addr[:i+len("://")], addr[i+len("://"):]
	}
	if i := strings.LastIndexByte(addr, '@'); i >= 0 {
		user, addr = addr[:i], addr[i+1:]
	}
	return scheme, user, addr
}
