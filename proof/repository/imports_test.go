package repository

import (
	"errors"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const module = "github.com/lockstep-go/lockstep"

// goList runs the go command in dir and returns the lines that it prints.
func goList(t *testing.T, dir string, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", args, err, stderr.String())
	}
	return strings.Fields(string(out))
}

func isStandard(pkg string) bool {
	first, _, _ := strings.Cut(pkg, "/")
	return !strings.Contains(first, ".")
}

func TestNothingBelowTheAdaptersNeedsAThirdParty(t *testing.T) {
	for _, pkg := range goList(t, "../..", "-deps", "./locker/...", "./strategies/...", "./internal/cleanup", "./proof/history",
		"./middleware/pagelocker", "./backends", "./backends/backendtest", "./backends/memory", "./backends/redisstore/...", "./backends/sqlstore/...") {
		if !isStandard(pkg) && !strings.HasPrefix(pkg, module+"/") {
			t.Errorf("%s is needed", pkg)
		}
	}
}

// TestTheRootRequiresOnlyTheClientsOfItsStores: every program with Lockstep has in its module graph what
// the root requires. What only tests, one middleware or an example needs is required by a nested module.
func TestTheRootRequiresOnlyTheClientsOfItsStores(t *testing.T) {
	want := []string{"github.com/alicebob/miniredis/v2", "github.com/gomodule/redigo", "github.com/redis/go-redis/v9"}
	if got := goList(t, "../..", "-m", "-f", "{{if not (or .Main .Indirect)}}{{.Path}}{{end}}", "all"); !slices.Equal(got, want) {
		t.Errorf("the root requires %q; want %q", got, want)
	}
}

// TestMiddlewareNeedsNoSDK checks that a program with otellocker gets only the API of
// OpenTelemetry, and one with sloglocker nothing of it.
func TestMiddlewareNeedsNoSDK(t *testing.T) {
	for pkg, mayImport := range map[string]string{"otellocker": "go.opentelemetry.io/otel", "sloglocker": module} {
		dir := "../../middleware/" + pkg // otellocker is a module of its own
		for _, imported := range goList(t, dir, "-f", `{{join .Imports "\n"}}`, ".") {
			if !isStandard(imported) && imported != module+"/locker" && imported != module+"/locker/contract" && imported != module+"/locker/election" && imported != mayImport && !strings.HasPrefix(imported, mayImport+"/") {
				t.Errorf("%s imports %s", pkg, imported)
			}
		}
		for _, needed := range goList(t, dir, "-deps", ".") {
			if strings.HasPrefix(needed, "go.opentelemetry.io/otel/sdk") {
				t.Errorf("%s needs %s", pkg, needed)
			}
		}
	}
}

// TestWhoImportsWhom checks the picture in docs/design.md.
func TestWhoImportsWhom(t *testing.T) {
	allowed := []struct {
		below   string
		imports []string // of this module
	}{
		{"locker/fence", nil},
		{"locker/contract", []string{"internal/calls", "internal/outcome", "internal/printed"}},
		{"locker/lockertest", []string{"backends/backendtest", "internal/outcome", "locker", "locker/contract"}},
		{"locker/election", []string{"backends", "locker", "locker/contract"}},
		{"locker", []string{"internal/address", "internal/calls", "internal/cleanup", "internal/outcome", "internal/printed", "internal/prompt", "internal/relied", "internal/stack", "internal/wallclock", "locker", "locker/contract"}},
		{"backends/backendtest", []string{"backends", "internal/relied"}},
		{"backends/memory", []string{"backends"}},
		{"backends/redisstore/internal/info", nil},
		{"backends/redisstore/internal/scripts", nil},
		{"backends/redisstore/internal/pipeline", []string{"backends/redisstore/driver", "internal/outcome", "internal/stack"}},
		{"backends/redisstore/internal/wake", []string{"backends/redisstore/driver", "internal/cleanup", "internal/outcome"}},
		{"proof/drivertest", []string{"backends", "backends/backendtest", "backends/redisstore", "backends/redisstore/driver", "internal/starting", "proof/full", "proof/wire", "proof/quarantinetest", "proof/redistest", "proof/trial", "proof/wiretest", "locker", "strategies/fair", "strategies/fenced", "strategies/reentrant", "strategies/rwlock", "strategies/single", "locker/contract"}},
		{"backends/redisstore/driver", []string{"backends", "backends/redisstore/internal/info", "backends/redisstore/internal/scripts", "internal/cleanup", "internal/printed"}},
		{"backends/redisstore", []string{"backends", "backends/redisstore/driver", "backends/redisstore/internal/info", "backends/redisstore/internal/pipeline", "backends/redisstore/internal/scripts", "backends/redisstore/internal/wake", "internal/address", "internal/bounded", "internal/cleanup", "internal/printed", "internal/prompt", "internal/stack", "internal/turns"}},
		{"backends/sqlstore", []string{"backends", "internal/bounded", "internal/cleanup", "internal/printed", "internal/turns", "locker", "locker/contract"}},
		{"backends/goredis", []string{"backends", "backends/redisstore", "backends/redisstore/driver", "internal/prompt"}},
		{"backends/redigo", []string{"backends/redisstore", "backends/redisstore/driver"}},
		{"backends/embedded", nil},
		{"backends", []string{"internal/outcome", "internal/relied"}},
		{"strategies", []string{"locker", "backends", "internal/address", "internal/calls", "internal/cleanup", "internal/prompt", "internal/stack", "internal/starting", "internal/wallclock", "strategies/*", "locker/contract"}},
		{"middleware/pagelocker", []string{"backends", "locker", "locker/contract"}},
		{"middleware", []string{"locker", "locker/election", "locker/contract"}},
		{"internal/address", nil},
		{"internal/bounded", nil},
		{"internal/calls", nil},
		{"internal/prompt", nil},
		{"internal/cleanup", []string{"internal/outcome"}},
		{"proof/history", nil},
		{"proof/daemon", nil},
		{"proof/powercut", []string{"proof/daemon"}},
		{"proof/redistest", []string{"proof/daemon", "proof/powercut"}}, // the processes of all servers
		{"internal/outcome", nil},
		{"internal/printed", nil},
		{"internal/relied", nil},
		{"internal/stack", nil},
		{"internal/starting", []string{"backends"}},
		{"internal/turns", []string{"backends"}},
		{"internal/wallclock", nil},
	}
	var all []string
	for _, dir := range []string{"../..", "../../middleware/otellocker"} {
		all = append(all, goList(t, dir, "-f", `{{.ImportPath}}{{range .Imports}},{{.}}{{end}}`, "./...")...)
	}
	for _, line := range all {
		parts := strings.Split(line, ",")
		pkg := strings.TrimPrefix(parts[0], module+"/")
		for _, rule := range allowed {
			if pkg != rule.below && !strings.HasPrefix(pkg, rule.below+"/") {
				continue
			}
			for _, imported := range parts[1:] {
				own, ok := strings.CutPrefix(imported, module+"/")
				below := slices.ContainsFunc(rule.imports, func(r string) bool {
					folder, all := strings.CutSuffix(r, "*")
					return r == own || all && strings.HasPrefix(own, folder)
				})
				if ok && !below {
					t.Errorf("%s imports %s", pkg, own)
				}
			}
			break // the first rule that matches is the narrowest
		}
	}
}

// TestImportsRunDown checks that a folder at the top imports only folders that stand below it here, in
// all modules. Tests may import everything: most of them need package redistest.
func TestImportsRunDown(t *testing.T) {
	type imports struct{ by, of string }
	allowed := []imports{
		{"bench", "proof"}, {"bench", "strategies"}, {"bench", "backends"}, {"bench", "locker"},
		{"proof", "strategies"}, {"proof", "backends"}, {"proof", "locker"}, {"proof", "internal"},
		{"cmd", "middleware"}, {"cmd", "strategies"}, {"cmd", "backends"}, {"cmd", "locker"},
		{"examples", "middleware"}, {"examples", "strategies"}, {"examples", "backends"}, {"examples", "locker"},
		{"middleware", "backends"}, {"middleware", "locker"},
		{"strategies", "backends"}, {"strategies", "locker"}, {"strategies", "internal"},
		{"backends", "locker"}, {"backends", "internal"},
		{"locker", "internal"},

		// These two run up.
		{"locker", "backends"},   // lockertest passes on the faults of backendtest, and election asks an Inspector
		{"internal", "backends"}, // starting and turns are parts that stores share, written in the words of backends
	}
	found := map[imports]string{} // a file that has it
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		by, _, _ := strings.Cut(strings.TrimPrefix(filepath.ToSlash(path), "../../"), "/")
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			own, ok := strings.CutPrefix(imported, module+"/")
			if of, _, _ := strings.Cut(own, "/"); ok && of != by {
				found[imports{by, of}] = path + " imports " + own
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for pair, where := range found {
		if !slices.Contains(allowed, pair) {
			t.Errorf("%s: %s does not import %s", where, pair.by, pair.of)
		}
	}
	for _, pair := range allowed {
		if found[pair] == "" {
			t.Errorf("%s imports %s no more: take it off the list", pair.by, pair.of)
		}
	}
}

// TestAConsumerGetsWhatItAskedForAndNoMore builds a program outside of this module for each
// adapter.
func TestAConsumerGetsWhatItAskedForAndNoMore(t *testing.T) {
	adapters := map[string]struct{ client, store string }{
		"goredis": {"github.com/redis/go-redis/v9", "goredis.New(redis.NewClient(&redis.Options{}))"},
		"redigo":  {"github.com/gomodule/redigo/redis", "redigo.New(&redis.Pool{})"},
	}
	for adapter, a := range adapters {
		t.Run(adapter, func(t *testing.T) {
			dir := consumer(t)
			write(t, filepath.Join(dir, "main.go"), `package main

import (
	"context"

	"`+module+`/backends/`+adapter+`"
	"`+module+`/locker"
	"`+module+`/strategies/single"
	"`+a.client+`"
)

func main() {
	locks := locker.New(single.New(`+a.store+`))
	_ = locks.Do(context.Background(), "key", func(context.Context, *locker.Lock) error { return nil })
}
`)
			packages := goList(t, dir, "-deps", ".")
			if !slices.Contains(packages, a.client) {
				t.Errorf("%s is not in the program: this test is wrong", a.client)
			}
			unwanted := []string{"miniredis", "opentelemetry", "gopher-lua", "rueidis", "backends/embedded", "backends/memory", "testing"}
			for other, b := range adapters {
				if other != adapter {
					unwanted = append(unwanted, b.client, "backends/"+other)
				}
			}
			for _, pkg := range packages {
				for _, u := range unwanted {
					if strings.Contains(pkg, u) {
						t.Errorf("%s is in the program", pkg)
					}
				}
			}
			build(t, dir)
		})
	}
}

// TestPackagesWorkOn32Bits is about numbers that an int of 64 bits holds, such as the difference of
// two times.
func TestPackagesWorkOn32Bits(t *testing.T) {
	program := filepath.Join(t.TempDir(), "memory.test")
	for _, args := range [][]string{
		{"build", "./locker/...", "./strategies/...", "./backends/backendtest", "./backends/redisstore/..."},
		{"test", "-vet=off", "-c", "-o", program, "./backends/memory"},
	} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = "../..", append(os.Environ(), "GOOS=linux", "GOARCH=386", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("go %v: %v\n%s", args, err, out)
		}
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run", "Contract/in_fake_time")
	cmd.Dir = "../../backends/memory"
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.ENOEXEC) || runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("LEFT OUT: this machine runs no programs for 386. They were compiled")
	}
	if err != nil {
		t.Errorf("%s: %v\n%s", program, err, out)
	}
}

// consumer makes a module that requires this one, from its directory.
func consumer(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	// It requires the same versions as this module, so that nothing must be downloaded.
	text := strings.Replace(string(mod), "module "+module, "module consumer", 1)
	write(t, filepath.Join(dir, "go.mod"), text+"\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+root+"\n")
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "go.sum"), string(sum))
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func build(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", "-ldflags=-s", "./...") // no debugger will see it
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go build: %v\n%s", err, out)
	}
}
