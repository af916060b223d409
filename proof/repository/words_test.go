package repository

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestTheWordsForMetricsAreDocumented compares the words that ErrorType returns with those of
// docs/errors.md. A word that ends with _ is followed by the code of a server.
func TestTheWordsForMetricsAreDocumented(t *testing.T) {
	code := map[string]bool{}
	for _, dir := range []string{"locker", "backends", "strategies", "middleware", "internal/cleanup"} {
		for _, file := range sourceFiles(t, "../../"+dir) {
			wordsOf(t, file, code)
		}
	}
	page := read(t, "../../docs/errors.md")
	_, page, _ = strings.Cut(page, "\n## One word for metrics\n")
	page, _, _ = strings.Cut(page, "\n## ")
	docs := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `.*?\\|").FindAllString(page, -1) {
		for _, word := range regexp.MustCompile("`([a-z0-9_]+)`").FindAllStringSubmatch(row, -1) {
			docs[word[1]] = true
		}
	}
	if len(code) < 20 || len(docs) < 20 {
		t.Fatalf("only %d words of the code and %d of the page were found", len(code), len(docs))
	}
	for _, word := range slices.Sorted(maps.Keys(code)) {
		if !docs[word] {
			t.Errorf("docs/errors.md does not have %q, which the code returns", word)
		}
	}
	for _, word := range slices.Sorted(maps.Keys(docs)) {
		i := strings.IndexByte(word, '_')
		if !code[word] && !(i >= 0 && code[word[:i+1]]) {
			t.Errorf("docs/errors.md has %q, which no code returns", word)
		}
	}
}

func sourceFiles(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch name := filepath.Base(path); {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasSuffix(name, "test") || name == "dialects"):
			return filepath.SkipDir // suites for tests
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// wordsOf adds the words of a file: what its methods ErrorType return, and what is given to Kind or
// stands in the table of words of package driver.
func wordsOf(t *testing.T, path string, words map[string]bool) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	add := func(e ast.Expr) bool {
		lit, ok := e.(*ast.BasicLit)
		if ok && lit.Kind == token.STRING {
			word, _ := strconv.Unquote(lit.Value)
			words[word] = true
		}
		return ok
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Name.Name != "ErrorType" || n.Recv == nil {
				return true
			}
			ast.Inspect(n.Body, func(n ast.Node) bool {
				if r, ok := n.(*ast.ReturnStmt); ok && !addReturned(r.Results[0], add) {
					t.Errorf("%s: ErrorType returns a word that this test can't read", fset.Position(r.Pos()))
				}
				return true
			})
		case *ast.CallExpr:
			if name(n.Fun) == "Kind" && len(n.Args) == 3 && !add(n.Args[0]) {
				t.Errorf("%s: the word of Kind is no constant", fset.Position(n.Pos()))
			}
		case *ast.CompositeLit:
			if id, ok := n.Type.(*ast.Ident); ok && id.Name == "kind" && len(n.Elts) == 3 {
				add(n.Elts[1])
			}
		case *ast.ValueSpec:
			if len(n.Names) == 1 && n.Names[0].Name == "words" && len(n.Values) == 1 {
				for _, row := range n.Values[0].(*ast.CompositeLit).Elts {
					if lit, ok := row.(*ast.CompositeLit); !ok || !add(lit.Elts[0]) {
						t.Errorf("%s: a row of words begins with no word", fset.Position(row.Pos()))
					}
				}
			}
		}
		return true
	})
}

// addReturned reads what an ErrorType returns: a word, a prefix and a code, or the word of another
// error or of a table, which is read where it stands.
func addReturned(e ast.Expr, add func(ast.Expr) bool) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return add(e)
	case *ast.BinaryExpr:
		return add(e.X)
	case *ast.CallExpr:
		return name(e.Fun) == "ErrorType"
	case *ast.SelectorExpr:
		return e.Sel.Name == "word"
	}
	return false
}

func name(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
