package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// module is a go.mod file of the repository.
type module struct {
	Dir     string // in the repository; "." is the root
	Path    string
	require []string
	replace []replacement
}

type replacement struct{ path, by string }

// local tells whether a module is replaced by a folder.
func (r replacement) local() bool {
	return strings.HasPrefix(r.by, "./") || strings.HasPrefix(r.by, "../")
}

// tag names a version of the module as the go command looks for it.
func (m module) tag(version string) string { return path.Join(m.Dir, version) }

// The versions that the go command accepts: semantic versions with a v, without build metadata.
var semantic = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(0|[1-9]\d*|\d*[A-Za-z-][\dA-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][\dA-Za-z-]*))*)?$`)

// check returns the commit to release, and its modules in the order of their tags. It changes nothing.
func check(repo git, version string) (head string, modules []module, err error) {
	major := semantic.FindStringSubmatch(version)
	if major == nil {
		return "", nil, fmt.Errorf("%q is no semantic version: write it as v0.2.0 or v0.2.0-rc.1", version)
	}
	if head, err = repo.run("rev-parse", "HEAD"); err != nil {
		return "", nil, err
	}
	changed, err := repo.run("status", "--porcelain")
	if err != nil {
		return "", nil, err
	}
	if changed != "" {
		return "", nil, fmt.Errorf("the tree has changes: commit or remove them\n%s", changed)
	}
	if modules, err = released(repo); err != nil {
		return "", nil, err
	}
	for _, m := range modules {
		if suffix := "/v" + major[1]; major[1] > "1" && !strings.HasSuffix(m.Path, suffix) {
			return "", nil, fmt.Errorf("%s of %s: the path of the module must end with %s", version, m.Path, suffix)
		}
		found, err := repo.run("tag", "--list", m.tag(version))
		if err != nil {
			return "", nil, err
		}
		if found != "" {
			return "", nil, fmt.Errorf("the tag %s exists: choose the next version", found)
		}
	}
	return head, modules, changes(filepath.Join(repo.dir, "CHANGELOG.md"), version)
}

// changes looks for a section about the version that says something.
func changes(file, version string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	number := regexp.QuoteMeta(strings.TrimPrefix(version, "v"))
	heading := regexp.MustCompile(`(?m)^## \[?v?` + number + `\]?( .*)?$`).FindIndex(text)
	if heading == nil {
		return fmt.Errorf("CHANGELOG.md has no section %q: rename the section Unreleased", "## "+version[1:]+" - DATE")
	}
	section, _, _ := strings.Cut(string(text[heading[1]:]), "\n## ")
	if strings.TrimSpace(section) == "" {
		return fmt.Errorf("the section %s of CHANGELOG.md is empty: say what a user sees", version[1:])
	}
	return nil
}

// released are the modules that get a tag. A module stands behind those that it requires, since its
// go.sum has their sums: they must have their tags before.
func released(repo git) (ordered []module, err error) {
	files, err := repo.run("ls-files", "go.mod", "*/go.mod")
	if err != nil {
		return nil, err
	}
	var waiting []module
	for _, file := range strings.Fields(files) {
		if slices.Contains(unreleased, path.Dir(file)) {
			continue
		}
		m, err := read(repo.dir, path.Dir(file))
		if err != nil {
			return nil, err
		}
		waiting = append(waiting, m)
	}
	known := func(p string) bool { return slices.ContainsFunc(waiting, func(m module) bool { return m.Path == p }) }
	for _, m := range waiting {
		for _, r := range m.replace {
			if !r.local() || !known(r.path) || m.Dir == "." {
				return nil, fmt.Errorf("%s replaces %s by %s, and a consumer would not: require a version of it", path.Join(m.Dir, "go.mod"), r.path, r.by)
			}
		}
	}
	for len(waiting) > 0 {
		next := slices.IndexFunc(waiting, func(m module) bool {
			return !slices.ContainsFunc(m.require, func(p string) bool { return p != m.Path && known(p) })
		})
		if next < 0 {
			return nil, fmt.Errorf("the modules %v require each other: none can get its tag first", names(waiting))
		}
		ordered = append(ordered, waiting[next])
		waiting = slices.Delete(waiting, next, next+1) // known is about those that are left
	}
	if len(ordered) == 0 || ordered[0].Dir != "." {
		return nil, errors.New("the first module must be the root of the repository: run it there")
	}
	return ordered, nil
}

func names(modules []module) (paths []string) {
	for _, m := range modules {
		paths = append(paths, m.Path)
	}
	return paths
}

// read has the go command read a go.mod file.
func read(root, dir string) (module, error) {
	text, err := command(filepath.Join(root, dir), nil, "go", "mod", "edit", "-json")
	if err != nil {
		return module{}, err
	}
	var parsed struct {
		Module  struct{ Path string }
		Require []struct{ Path string }
		Replace []struct {
			Old, New struct{ Path, Version string }
		}
	}
	if err := json.Unmarshal([]byte(text), &parsed); err != nil {
		return module{}, fmt.Errorf("%s: %w", path.Join(dir, "go.mod"), err)
	}
	m := module{Dir: dir, Path: parsed.Module.Path}
	for _, r := range parsed.Require {
		m.require = append(m.require, r.Path)
	}
	for _, r := range parsed.Replace {
		m.replace = append(m.replace, replacement{path: r.Old.Path, by: strings.TrimSpace(r.New.Path + " " + r.New.Version)})
	}
	return m, nil
}
