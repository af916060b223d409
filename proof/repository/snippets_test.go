package repository

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// packages are the packages that snippets may use without an import, by name.
var packages = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "json": "encoding/json", "log": "log", "slog": "log/slog", "time": "time", "tls": "crypto/tls",
	"os": "os", "x509": "crypto/x509", "testing": "testing", "synctest": "testing/synctest", "http": "net/http", "sql": "database/sql",
	"locker":      module + "/locker",
	"lockertest":  module + "/locker/lockertest",
	"backends":    module + "/backends",
	"backendtest": module + "/backends/backendtest",
	"memory":      module + "/backends/memory",
	"drivertest":  module + "/proof/drivertest",
	"goredis":     module + "/backends/goredis",
	"redigo":      module + "/backends/redigo",
	"embedded":    module + "/backends/embedded",
	"single":      module + "/strategies/single",
	"fair":        module + "/strategies/fair",
	"fenced":      module + "/strategies/fenced",
	"redlock":     module + "/strategies/redlock",
	"strategies":  module + "/strategies",
	"reentrant":   module + "/strategies/reentrant",
	"semaphore":   module + "/strategies/semaphore",
	"rwlock":      module + "/strategies/rwlock",
	"fence":       module + "/locker/fence",
	"contract":    module + "/locker/contract",
	"election":    module + "/locker/election",
	"otellocker":  module + "/middleware/otellocker",
	"sloglocker":  module + "/middleware/sloglocker",
	"pagelocker":  module + "/middleware/pagelocker",
	"attribute":   "go.opentelemetry.io/otel/attribute",
	"redisstore":  module + "/backends/redisstore",
	"redis":       "github.com/redis/go-redis/v9",
	"redigolib":   "github.com/gomodule/redigo/redis",
}

// around has the declarations that a snippet may use.
const around = `package snippet

import (
	"context"
	"crypto/tls"
	"log/slog"
	"` + module + `/backends"
	"` + module + `/locker"
	"github.com/redis/go-redis/v9"
)

var (
	ctx     = context.Background()
	client  *redis.Client
	store   anyStore
	locks   *locker.Client
	nodes   []locker.Locker
	invoice struct{ Number int }
	err     error

	addresses []string
	logger    *slog.Logger
	caPEM     []byte
	tlsConfig *tls.Config
	secrets   vault
)

type anyStore interface {
	backends.NumberedStore
	backends.QueuedStore
	backends.OrderedStore
	backends.Inspector
	backends.Lister
	backends.Evictor
}

type vault struct{}

func (vault) Current() string { return "" }

func charge(ctx context.Context, invoice any) error { return ctx.Err() }
func work(ctx context.Context) error                { return ctx.Err() }
func send(ctx context.Context) error                { return ctx.Err() }
func consume(ctx context.Context, id int) error      { return ctx.Err() }
func load(ctx context.Context) error                { return ctx.Err() }

func save(ctx context.Context, number uint64) error { return ctx.Err() }
`

// TestSnippetsCompile checks every block of Go in the documentation: a whole program, declarations,
// or statements. Blocks of statements are files of one package. The others may declare the same
// names, so each has a package of its own.
func TestSnippetsCompile(t *testing.T) {
	snippets := map[string]map[string]map[string]string{} // the source of each file, by folder of a module and by package
	add := func(dir, in, name, source string) {
		if snippets[dir] == nil {
			snippets[dir] = map[string]map[string]string{}
		}
		if snippets[dir][in] == nil {
			snippets[dir][in] = map[string]string{}
		}
		snippets[dir][in][name] = source
	}
	blocks := 0
	for _, file := range documents(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(block[1], "/exporters/otlp/") {
				// package observe of module bench builds and runs it: the root module does not
				// require exporters
				continue
			}
			blocks++
			name := fmt.Sprintf("%s_%d", regexp.MustCompile(`\W`).ReplaceAllString(file, "_"), i+1)
			source, in, dir := block[1], name, "../.."
			if store := ofAModule.FindStringSubmatch(source); store != nil { // the root module does not require its client library
				dir += "/backends/" + store[1]
			} else if strings.Contains(source, "otellocker.") { // nor OpenTelemetry
				dir += "/examples/otel"
			}
			if !strings.HasPrefix(source, "package ") {
				if source, err = complete(source); err != nil {
					t.Errorf("%s, block %d: %v\n%s", file, i+1, err, block[1])
					continue
				}
				if strings.Contains(source, "\nfunc _() error {") {
					in = "statements"
				}
				add(dir, in, "around", around)
			}
			add(dir, in, name, source)
		}
	}
	if blocks < 5 {
		t.Errorf("only %d blocks; is the pattern of this test right?", blocks)
	}
	for dir, packages := range snippets {
		for _, err := range typeErrors(t, dir, packages) {
			t.Error(err)
		}
	}
}

// ofAModule finds a whole file that uses a store which is a module of its own.
var ofAModule = regexp.MustCompile(`(?m)^\t"` + module + `/backends/(pgxstore|etcd|natsstore|rueidisstore)"$`)

func TestASnippetThatDoesNotCompileIsFound(t *testing.T) {
	for source, want := range map[string]string{
		"package p\n\nvar x int = \"text\"\n":                                              "cannot use",
		"package p\n\nimport \"time\"\n":                                                   "imported and not used",
		"package p\n\nfunc f() { x := 1 }\n":                                               "declared and not used",
		"package main\n\nfunc Main() {}\n":                                                 "without a function main",
		"package p\n\nfunc f() int {}\n":                                                   "missing return",
		"package p\n\nimport \"" + module + "/internal/cleanup\"\n\nvar x cleanup.Queue\n": "internal",
		"package p\n\nimport \"" + module + "/proof/daemon\"\n\nvar x daemon.Port\n":       "not for consumers",
	} {
		errs := typeErrors(t, "../..", map[string]map[string]string{"p": {"p": source}})
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%v instead of %q, of\n%s", errs, want, source)
		}
	}
}

func TestAnOptionOfAClientIsNoneOfACall(t *testing.T) {
	for _, option := range []string{"WithOtherSoftware()", "WithMaxHandovers(1)", "WithHolder(`a`)", "WithMiddleware()"} {
		for call, compiles := range map[string]bool{
			"locker.New(nil, locker." + option + ")":                                     true,
			"locker.New(nil, locker.WithTTL(1))":                                         true,
			"new(locker.Client).Lock(nil, ``, locker." + option + ")":                    false,
			"new(locker.Client).TryLock(nil, ``, locker." + option + ")":                 false,
			"new(locker.Client).Do(nil, ``, nil, locker." + option + ")":                 false,
			"new(locker.Client).DoAll(nil, nil, nil, locker." + option + ")":             false,
			"new(locker.Client).Resume(nil, *new(locker.Ticket), locker." + option + ")": false,
		} {
			source := "package p\n\nimport \"" + module + "/locker\"\n\nfunc f() { " + call + " }\n"
			errs := typeErrors(t, "../..", map[string]map[string]string{"p": {"p": source}})
			if compiles != (len(errs) == 0) || !compiles && !strings.Contains(errs[0].Error(), "cannot use locker."+strings.TrimSuffix(option, "`a`)")) {
				t.Errorf("%s: %v", call, errs)
			}
		}
	}
}

// typeErrors type-checks packages in the module of dir, given as the source of each file. To compile them finds nothing
// more, and takes half a minute of CPU.
func typeErrors(t *testing.T, dir string, packages map[string]map[string]string) (errs []error) {
	t.Helper()
	fset, parsed, imported := token.NewFileSet(), map[string][]*ast.File{}, map[string]bool{}
	for pkg, files := range packages {
		for name, source := range files {
			f, err := parser.ParseFile(fset, name+".go", source, 0)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			parsed[pkg] = append(parsed[pkg], f)
			for _, spec := range f.Imports {
				path, _ := strconv.Unquote(spec.Path.Value) // parsed before
				imported[path] = true
				if strings.HasPrefix(path, module+"/internal/") {
					errs = append(errs, fmt.Errorf("%s.go: import of %s, which is internal", name, path))
				}
				if strings.HasPrefix(path, module+"/proof/") && path != module+"/proof/drivertest" {
					errs = append(errs, fmt.Errorf("%s.go: import of %s, which is not for consumers", name, path))
				}
			}
		}
	}
	exports := map[string]string{} // time is there so that there is something to list
	list := []string{"-deps", "-export", "-f", "{{if .Export}}{{.ImportPath}}={{.Export}}{{end}}", "time"}
	for _, line := range goList(t, dir, append(list, slices.Collect(maps.Keys(imported))...)...) {
		path, file, _ := strings.Cut(line, "=")
		exports[path] = file
	}
	compiled := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for pkg, files := range parsed {
		config := types.Config{Importer: compiled, Error: func(err error) { errs = append(errs, err) }}
		checked, _ := config.Check(pkg, fset, files, nil) // Error has got the error
		if checked.Name() == "main" && checked.Scope().Lookup("main") == nil {
			errs = append(errs, fmt.Errorf("%s: a program without a function main", pkg))
		}
	}
	return errs
}

// TestTestsInTheDocumentationPass runs the blocks that are tests.
func TestTestsInTheDocumentationPass(t *testing.T) {
	dir := consumer(t)
	for _, page := range []string{"recipes", "adding-a-strategy"} {
		found := false
		for _, block := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(read(t, "../../docs/"+page+".md"), -1) {
			source := block[1]
			if !strings.Contains(source, "func Test") {
				continue
			}
			found = true
			if !strings.HasPrefix(source, "package ") {
				var err error
				if source, err = complete(source); err != nil {
					t.Fatal(err)
				}
			}
			write(t, filepath.Join(dir, page, "snippet_test.go"), source)
		}
		if !found {
			t.Errorf("%s has no test; is this the right page?", page)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "./...")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go test: %v\n%s", err, out)
	}
}

// complete makes a file of declarations or statements, with imports.
func complete(source string) (string, error) {
	if _, err := parser.ParseFile(token.NewFileSet(), "", "package snippet\n"+source, 0); err != nil {
		source = "func _() error {\n" + source + "\n\treturn nil\n}\n"
	}
	f, err := parser.ParseFile(token.NewFileSet(), "", "package snippet\n"+source, 0)
	if err != nil {
		return "", err
	}
	var imports, unused []string
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok && packages[id.Name] != "" && id.Obj == nil {
				imports = append(imports, fmt.Sprintf("import %s %q\n", id.Name, packages[id.Name]))
			}
		case *ast.AssignStmt: // a snippet may leave a variable for the reader
			for _, left := range n.Lhs {
				if id, ok := left.(*ast.Ident); ok && n.Tok == token.DEFINE && id.Name != "_" {
					unused = append(unused, id.Name)
				}
			}
		}
		return true
	})
	slices.Sort(imports)
	if fn, ok := f.Decls[len(f.Decls)-1].(*ast.FuncDecl); ok && fn.Name.Name == "_" {
		slices.Sort(unused)
		var uses string
		for _, name := range slices.Compact(unused) {
			if declares(fn.Body.List, name) {
				uses += "\t_ = " + name + "\n"
			}
		}
		source = strings.TrimSuffix(source, "\treturn nil\n}\n") + uses + "\treturn nil\n}\n"
	}
	return "package snippet\n\n" + strings.Join(slices.Compact(imports), "") + "\n" + source, nil
}

// declares tells whether one of the statements declares name, outside of inner blocks.
func declares(statements []ast.Stmt, name string) bool {
	for _, s := range statements {
		if a, ok := s.(*ast.AssignStmt); ok && a.Tok == token.DEFINE {
			for _, left := range a.Lhs {
				if id, ok := left.(*ast.Ident); ok && id.Name == name {
					return true
				}
			}
		}
	}
	return false
}

// TestLinksLeadSomewhere follows the relative links of the documentation, even to headings.
func TestLinksLeadSomewhere(t *testing.T) {
	links, anchors := 0, map[string][]string{}
	for _, file := range documents(t) {
		for _, link := range regexp.MustCompile(`\]\(([^)#:\s]*)(#[^)]*)?\)`).FindAllStringSubmatch(read(t, file), -1) {
			links++
			target := file
			if link[1] != "" {
				target = filepath.Join(filepath.Dir(file), link[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", file, err)
			} else if link[2] != "" {
				if anchors[target] == nil {
					anchors[target] = headings(t, target)
				}
				if !slices.Contains(anchors[target], link[2]) {
					t.Errorf("%s: no heading %s in %s", file, link[2], target)
				}
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links; is the pattern of this test right?", links)
	}
}

// headings returns the anchors of a page, as most sites make them.
func headings(t *testing.T, file string) (anchors []string) {
	t.Helper()
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(read(t, file), -1) {
		words := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		anchors = append(anchors, "#"+strings.ReplaceAll(words, " ", "-"))
	}
	return anchors
}
