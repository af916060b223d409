package ledger

import (
	"go/ast"
	"go/build"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Package is a folder with tests.
type Package struct {
	Folder    string   // in the repository; "." is the root
	Module    string   // the folder of its module
	Tests     []string // functions of tests, fuzz targets and examples with an output, in order, for all systems
	Plain     []string // those that are not built with the race detector
	Elsewhere []string // those that are not built on this system
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
		p := Package{Folder: folder, Module: modules[folder]}
		if err := p.read(path); err != nil {
			return err
		}
		if len(p.Tests) > 0 {
			all = append(all, p)
		}
		return nil
	})
	return all, err
}

// read reads the files of tests that some system builds.
func (p *Package) read(folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		return err
	}
	// A function may have a file for each system.
	found, raced, here := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, name := range files {
		b, err := buildingOf(name)
		if err != nil {
			return err
		}
		if !b.somewhere {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		add := func(test string) {
			found[test] = true
			raced[test] = raced[test] || b.raced
			here[test] = here[test] || b.here
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && f.Recv == nil && f.Name.Name != "TestMain" && (is(f.Name.Name, "Test") || is(f.Name.Name, "Fuzz")) {
				add(f.Name.Name)
			}
		}
		for _, example := range doc.Examples(file) {
			if example.Output != "" || example.EmptyOutput { // others are built and do not run
				add(strings.TrimSuffix("Example"+example.Name, "_"))
			}
		}
	}
	p.Tests = slices.Sorted(maps.Keys(found))
	for _, test := range p.Tests {
		if !raced[test] {
			p.Plain = append(p.Plain, test)
		}
		if !here[test] {
			p.Elsewhere = append(p.Elsewhere, test)
		}
	}
	return nil
}

// building tells where a file is built.
type building struct{ somewhere, raced, here bool }

func buildingOf(file string) (b building, err error) {
	for _, system := range []string{"linux", "darwin", "windows", runtime.GOOS} {
		for _, race := range []bool{false, true} {
			at := build.Default
			at.GOOS = system
			if race {
				at.ToolTags = append(slices.Clone(at.ToolTags), "race")
			}
			is, err := at.MatchFile(filepath.Dir(file), filepath.Base(file))
			if err != nil {
				return b, err
			}
			b.somewhere = b.somewhere || is
			b.raced = b.raced || is && race
			b.here = b.here || is && system == runtime.GOOS
		}
	}
	return b, nil
}

// is tells whether a function has a name of this kind, by the rule of the go command.
func is(name, kind string) bool {
	rest, ok := strings.CutPrefix(name, kind)
	first, _ := utf8.DecodeRuneInString(rest)
	return ok && (rest == "" || !unicode.IsLower(first))
}
