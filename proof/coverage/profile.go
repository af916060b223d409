package main

import (
	"bufio"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// block is a block of statements, and how often tests have run it.
type block struct {
	file             string // from the root of the module
	line, column     int
	statements, runs int
}

func (b block) folder() string { return path.Dir(b.file) }

// read reads a profile, in which every tested package has its own count of each block. It leaves
// out blocks without statements.
func read(profile string) ([]block, error) {
	f, err := os.Open(profile)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	type place struct {
		file string
		from [2]int
		to   [2]int
	}
	all := map[place]block{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "mode:") {
			continue
		}
		var p place
		var statements, runs int
		name, rest, _ := strings.Cut(lines.Text(), ".go:")
		if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &p.from[0], &p.from[1], &p.to[0], &p.to[1], &statements, &runs); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", profile, lines.Text(), err)
		}
		p.file = strings.TrimPrefix(name, module) + ".go"
		if statements > 0 {
			all[p] = block{p.file, p.from[0], p.from[1], statements, all[p].runs + runs}
		}
	}
	blocks := make([]block, 0, len(all))
	for _, b := range all {
		blocks = append(blocks, b)
	}
	slices.SortFunc(blocks, func(a, b block) int {
		return cmp.Or(strings.Compare(a.file, b.file), a.line-b.line, a.column-b.column)
	})
	return blocks, nil
}

// declarations finds the declaration of a block.
type declarations struct {
	root  string
	files map[string][]declaration
}

type declaration struct {
	name     string
	from, to int
}

// of returns the function, the method or the variable, such as strategies/redlock.New or
// locker.Client.Lock.
func (d *declarations) of(b block) (string, error) {
	all, known := d.files[b.file]
	if !known {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, filepath.Join(d.root, b.file), nil, parser.SkipObjectResolution)
		if err != nil {
			return "", err
		}
		for _, decl := range file.Decls {
			for name, node := range named(decl) {
				all = append(all, declaration{b.folder() + "." + name, set.Position(node.Pos()).Line, set.Position(node.End()).Line})
			}
		}
		if d.files == nil {
			d.files = map[string][]declaration{}
		}
		d.files[b.file] = all
	}
	for _, decl := range all {
		if decl.from <= b.line && b.line <= decl.to {
			return decl.name, nil
		}
	}
	return "", fmt.Errorf("%s:%d is in no declaration: is the profile of these sources?", b.file, b.line)
}

// named returns the parts of a declaration that can have statements.
func named(decl ast.Decl) map[string]ast.Node {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		name := decl.Name.Name
		if decl.Recv != nil {
			name = receiver(decl.Recv.List[0].Type) + "." + name
		}
		return map[string]ast.Node{name: decl}
	case *ast.GenDecl:
		all := map[string]ast.Node{}
		for _, spec := range decl.Specs {
			if spec, ok := spec.(*ast.ValueSpec); ok {
				all[spec.Names[0].Name] = spec
			}
		}
		return all
	}
	return nil
}

func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr: // generic
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	}
	return "?"
}
