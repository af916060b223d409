package ledger

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Package is a folder with tests.
type Package struct {
	Folder string   // in the repository; "." is the root
	Module string   // the folder of its module
	Tests  []string // functions of tests, fuzz targets and examples with an output, in order, for all systems
}

// Packages reads the tests of all modules at root. It parses files and builds nothing.
func Packages(root string) (all []Package, err error) {
	modules := map[string]string{".": "."} // by folder
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		folder, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		folder = filepath.ToSlash(folder)
		if name := d.Name(); folder != "." && (name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
			return filepath.SkipDir // as the go command does
		}
		if found, _ := filepath.Glob(filepath.Join(path, "go.mod")); found != nil {
			modules[folder] = folder
		} else {
			modules[folder] = modules[filepath.ToSlash(filepath.Dir(folder))]
		}
		tests, err := testsIn(path)
		if len(tests) > 0 {
			all = append(all, Package{folder, modules[folder], tests})
		}
		return err
	})
	return all, err
}

func testsIn(folder string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		return nil, err
	}
	found := map[string]bool{} // a function may have a file for each system
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && f.Recv == nil && f.Name.Name != "TestMain" && (is(f.Name.Name, "Test") || is(f.Name.Name, "Fuzz")) {
				found[f.Name.Name] = true
			}
		}
		for _, example := range doc.Examples(file) {
			if example.Output != "" || example.EmptyOutput { // others are built and do not run
				found[strings.TrimSuffix("Example"+example.Name, "_")] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// is tells whether a function has a name of this kind, by the rule of the go command.
func is(name, kind string) bool {
	rest, ok := strings.CutPrefix(name, kind)
	first, _ := utf8.DecodeRuneInString(rest)
	return ok && (rest == "" || !unicode.IsLower(first))
}
