package strategies

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// openError is that of an address, which may have a password; what the program's Open says may have it as well.
type openError struct {
	backend, addr string
	err           error
}

func (e *openError) Error() string {
	return fmt.Sprintf("lockstep: choose: open %s at %q: %s", e.backend, hide(e.addr), e.cause())
}

// Unwrap gives the error as it is, with whatever it says.
func (e *openError) Unwrap() error { return e.err }

func (e *openError) cause() string {
	_, user, _ := split(e.addr)
	if user == "" {
		return e.err.Error()
	}
	if parsing := (*url.Error)(nil); errors.As(e.err, &parsing) && parsing.Op == "parse" {
		return "it is not a URL" // the error quotes the place, which may be in the password
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

// forms are how something may be written in an error.
var forms = []func(string) string{
	func(s string) string { return s },
	func(s string) string { s = strconv.Quote(s); return s[1 : len(s)-1] },
	func(s string) string { return strings.TrimPrefix(url.UserPassword("", s).String(), ":") },
}

const hidden = "xxxxx"

// hide shows an address without user and password.
func hide(addr string) string {
	scheme, user, rest := split(addr)
	if user != "" {
		user = hidden + "@"
	}
	return scheme + user + rest
}

// split goes by the last @: a password may have one that is not escaped.
func split(addr string) (scheme, user, rest string) {
	if i := strings.Index(addr, "://"); i >= 0 {
		scheme, addr = addr[:i+len("://")], addr[i+len("://"):]
	}
	if i := strings.LastIndexByte(addr, '@'); i >= 0 {
		user, addr = addr[:i], addr[i+1:]
	}
	return scheme, user, addr
}
