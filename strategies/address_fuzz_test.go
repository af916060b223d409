package strategies

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// FuzzAddress: no error about an address shows its password, neither as written nor decoded. This
// holds also if the program's Open repeats the address, the password or the text of net/url. An
// address without a password is shown unchanged.
func FuzzAddress(f *testing.F) {
	for _, seed := range []struct{ scheme, user, password, host string }{
		{"redis://", "user", "S3CRET!", "host:6379/1"}, {"", "user", "S3CRET!", "host:6379"}, {"redis://", "", "S3C%52ET", "host"},
		{"redis://", "u", "sec@sec/sec%zz", "host"}, {"redis://", "u", `sec"ret\n`, "host"}, {"unix://", "", "", "/run/redis.sock"}, {"rediss://", "a:b", "päss wörd", "[::1]:6379"},
	} {
		f.Add(seed.scheme, seed.user, seed.password, seed.host)
	}
	f.Fuzz(func(t *testing.T, scheme, user, password, host string) {
		if strings.ContainsAny(scheme, ":/@") || strings.ContainsAny(host, "@") || strings.Contains(host, "://") || strings.Contains(user, "://") || strings.Contains(password, "://") {
			scheme = "redis"
			if strings.ContainsAny(host, "@") || strings.Contains(host+user+password, "://") {
				return // the address has another form
			}
		}
		if scheme != "" {
			scheme += "://"
		}
		addr := scheme + host
		s, u, rest := split(addr)
		if s+u+rest != addr || u != "" || hide(addr) != addr {
			t.Fatalf("split(%q) = %q, %q, %q; hide gives %q", addr, s, u, rest, hide(addr))
		}
		if plain := (&openError{backend: "b", addr: addr, err: errors.New(addr)}).Error(); !strings.HasSuffix(plain, ": "+addr) {
			t.Errorf("%q is not in %q", addr, plain)
		}

		if strings.Contains(user, ":") || password == "" {
			return
		}
		addr = scheme + user + ":" + password + "@" + host
		if got, want := hide(addr), scheme+hidden+"@"+host; got != want {
			t.Fatalf("hide(%q) = %q; want %q", addr, got, want)
		}
		_, parsing := url.Parse(addr)
		plain, _ := url.PathUnescape(password)
		for _, err := range []error{
			errors.New("down"), fmt.Errorf("dial %s: down", addr), fmt.Errorf("dial %q: down", addr), fmt.Errorf("wrong password %s", password),
			fmt.Errorf("wrong password %q", password), fmt.Errorf("wrong password %s", plain), fmt.Errorf("AUTH %q", []string{user, plain}), parsing,
		} {
			if err == nil {
				continue
			}
			text := (&openError{backend: "b", addr: addr, err: err}).Error()
			for _, secret := range []string{password, plain, inside(password), inside(plain)} {
				// A password that is also in the rest of the address, or in our own text, can't be
				// told apart.
				if len(secret) > 3 && strings.Contains(text, secret) && !strings.Contains(words+inside(scheme+host)+scheme+host, secret) {
					t.Errorf("%q: %s", addr, text)
				}
			}
		}
	})
}

// inside returns s as %q writes it, without the quotes.
func inside(s string) string {
	s = fmt.Sprintf("%q", s)
	return s[1 : len(s)-1]
}

const words = `lockstep: choose: open b at "": wrong password dial down AUTH ["" ""] xxxxx:@ it is not a URL: `
