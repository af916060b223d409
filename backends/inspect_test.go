package backends_test

import (
	"crypto/rand"
	"testing"

	"github.com/lockstep-go/lockstep/backends"
)

func TestOnlyWhatStandsBeforeASecretIsALabel(t *testing.T) {
	secret := rand.Text()
	for text, label := range map[string]string{
		"ann " + secret:              "ann",
		"ann of host/7 " + secret:    "ann of host/7",
		"  " + secret:                "",
		secret:                       "",
		" " + secret:                 "",
		"":                           "",
		"ann":                        "",
		"held by an operator":        "",
		"ann " + secret[1:]:          "",
		"ann " + secret + "A":        "",
		"ann " + secret[1:] + "1":    "",
		"ann " + secret[1:] + "a":    "",
		"ann " + secret + "@channel": "",
		"\xff " + secret:             "",
		"a\nb " + secret:             "",
	} {
		if got := backends.HolderOf(text); got != label {
			t.Errorf("HolderOf(%q) = %q; want %q", text, got, label)
		}
	}
}
