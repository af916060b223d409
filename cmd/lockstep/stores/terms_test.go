package stores

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/cmd/lockstep/command"
)

// goNames are what only programmers can use.
var goNames = regexp.MustCompile(`\b(redisstore|sqlstore|pgxstore|etcd|natsstore|redlock|locker|goredis|Store|tls|sql|nats)\.[A-Z]\w+|\bWith(out)?[A-Z]\w+|(^|[^` + "`" + `])\bInstall\b|\bDSN\b|\bin Endpoints\b`)

// unseen are texts that the command never shows: it gives no nil, opens its clients by Open, gives each MySQL
// server its address, makes connections that hear themselves, and leaves drift and node limit as they are.
var unseen = regexp.MustCompile(`is nil$|use Open, or Quarantine of the adapter$|redlock\.With(Drift|NodeLimit)|sqlstore\.WithAddress\)$|nats\.NoEcho`)

// Users of the command have flags and the parameters of a URL, and no code. The texts are read from the source
// of the stores, so a new one needs a term.
func TestTheCommandNamesNoOptionOfAPackage(t *testing.T) {
	words := command.Program{Stores: []command.Family{Redis(), PostgreSQL(), MySQL(), SQLite(), Etcd(), NATS()}}.Words()
	translated := 0
	for _, folder := range []string{"backends/redisstore", "backends/redisstore/driver", "backends/sqlstore", "backends/pgxstore", "backends/etcd", "backends/natsstore", "strategies/redlock"} {
		for _, text := range textsIn(t, "../../../"+folder) {
			if !goNames.MatchString(text) || unseen.MatchString(text) {
				continue
			}
			translated++
			if said := words.Replace(text); goNames.MatchString(said) {
				t.Errorf("%s: the command says %q", folder, said)
			}
		}
	}
	if translated < 30 {
		t.Errorf("%d texts with a name of Go only", translated)
	}
}

// textsIn are the string literals of a package.
func textsIn(t *testing.T, folder string) (all []string) {
	t.Helper()
	paths, err := filepath.Glob(folder + "/*.go")
	if err != nil || len(paths) == 0 {
		t.Fatal(folder, err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if _, ok := n.(*ast.ImportSpec); ok {
				return false
			}
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if text, err := strconv.Unquote(l.Value); err == nil {
					all = append(all, text)
				}
			}
			return true
		})
	}
	return all
}
