package main

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/proof/stamp"
)

// library are the files of a small repository: a root, a nested module, a command in a third module
// that requires both, and a module that is not released. The folders are such that the order of their
// names is not the order of their tags.
func library() map[string]string {
	const path = "github.com/lockstep-go/library"
	return map[string]string{
		"go.mod":            "module " + path + "\n\ngo 1.26.0\n",
		"lib.go":            "package library\n\nfunc Answer() int { return 42 }\n",
		"CHANGELOG.md":      "# Changelog\n\n## Unreleased\n\n## 0.2.0 - 2026-12-01\n\n- Answer.\n\n## [0.1.0] - 2026-11-01\n\n- The first.\n",
		"stores/sql/sql.go": "package sql\n\nimport \"" + path + "\"\n\nvar Answer = library.Answer()\n",
		"stores/sql/go.mod": "module " + path + "/stores/sql\n\ngo 1.26.0\n\nrequire " + path + " v0.0.0\n\n" +
			"replace " + path + " => ../../\n",
		"cmd/tool/main.go": "package main\n\nimport \"" + path + "/stores/sql\"\n\nfunc main() { println(sql.Answer) }\n",
		"cmd/tool/go.mod": "module " + path + "/cmd/tool\n\ngo 1.26.0\n\nrequire " + path + "/stores/sql v0.0.0\n\n" +
			"require " + path + " v0.0.0 // indirect\n\n" +
			"replace (\n\t" + path + " => ../../\n\t" + path + "/stores/sql => ../../stores/sql\n)\n",
		"bench/bench.go": "package bench\n\nimport _ \"" + path + "\"\n",
		"bench/go.mod": "module " + path + "/bench\n\ngo 1.26.0\n\nrequire " + path + " v0.0.0\n\n" +
			"replace " + path + " => ../\n",
	}
}

// repository commits the files to a new repository.
func repository(t *testing.T, files map[string]string) git {
	t.Helper()
	repo := git{dir: t.TempDir(), config: []string{"-c", "init.defaultBranch=main"}}
	for name, text := range files {
		write(t, filepath.Join(repo.dir, name), text)
	}
	must(t, repo, "init", "--quiet")
	must(t, repo, "config", "user.name", "Test")
	must(t, repo, "config", "user.email", "test@invalid")
	must(t, repo, "add", "--all")
	must(t, repo, "commit", "--quiet", "-m", "Start")
	return repo
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

func must(t *testing.T, repo git, args ...string) string {
	t.Helper()
	out, err := repo.run(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// state is what a dry run must leave alone.
func state(t *testing.T, repo git) string {
	t.Helper()
	return must(t, repo, "show-ref", "--head") + "\n" + must(t, repo, "status", "--porcelain")
}

// The pages of this repository stand in for the new ones, which have the commit that is given.
func TestFiguresOfOlderCodeAreNotReleasedUnlessTheyAreAccepted(t *testing.T) {
	t.Parallel()
	repo := repository(t, map[string]string{"locker/locker.go": "package locker\n"})
	made := stamp.Now(repo.dir, "locker")
	figured := func() (string, error, error) {
		for _, page := range stamp.Pages {
			write(t, filepath.Join(repo.dir, page), "Made by hand.\n"+made.String()+".\n")
		}
		var out strings.Builder
		refused := figures(&out, repo.dir, false)
		return out.String(), refused, figures(io.Discard, repo.dir, true)
	}
	if out, refused, accepted := figured(); refused != nil || accepted != nil || strings.Count(out, "nothing measured has changed") != len(stamp.Pages) {
		t.Errorf("%v, %v, and it prints\n%s", refused, accepted, out)
	}
	write(t, filepath.Join(repo.dir, "locker/locker.go"), "package locker // changed\n")
	if out, refused, accepted := figured(); refused == nil || accepted != nil || strings.Count(out, "OLDER THAN THE CODE") != len(stamp.Pages) {
		t.Errorf("%v, %v, and it prints\n%s", refused, accepted, out)
	}
	made.Commit = "0123456789ab"
	if out, refused, accepted := figured(); refused == nil || accepted != nil || strings.Count(out, "NOT KNOWN") != len(stamp.Pages) {
		t.Errorf("%v, %v, and it prints\n%s", refused, accepted, out)
	}
	write(t, filepath.Join(repo.dir, stamp.Pages[0]), "Made by hand.\n")
	if err := figures(io.Discard, repo.dir, true); err == nil {
		t.Error("a page without a stamp is accepted")
	}
}

func TestADryRunChangesNothing(t *testing.T) {
	t.Parallel()
	repo := repository(t, library())
	before := state(t, repo)
	var out strings.Builder
	if err := run(&out, repo.dir, "v0.2.0", false); err != nil {
		t.Fatal(err)
	}
	if after := state(t, repo); after != before {
		t.Errorf("the repository was\n%s\nand is\n%s", before, after)
	}
	head := must(t, repo, "rev-parse", "HEAD")
	want := "github.com/lockstep-go/library v0.2.0 at " + head[:12] + `
  tag       v0.2.0
  tag       stores/sql/v0.2.0
  tag       cmd/tool/v0.2.0
  go get    github.com/lockstep-go/library@v0.2.0: its packages build in another module: 1
  go get    github.com/lockstep-go/library/stores/sql@v0.2.0: its packages build in another module: 1
  install   github.com/lockstep-go/library/cmd/tool@v0.2.0
dry run: this repository is unchanged. To make the tags: make release VERSION=v0.2.0 TAG=yes
`
	if out.String() != want {
		t.Errorf("it prints\n%s\nwant\n%s", &out, want)
	}
}

func TestTagsNameCommitsWithoutReplace(t *testing.T) {
	t.Parallel()
	repo := repository(t, library())
	head := must(t, repo, "rev-parse", "HEAD")
	var out strings.Builder
	if err := run(&out, repo.dir, "v0.2.0", true); err != nil {
		t.Fatal(err)
	}
	if got := must(t, repo, "rev-parse", "v0.2.0^{commit}"); got != head {
		t.Errorf("the tag of the root names %s, want the released commit %s", got, head)
	}
	if got := must(t, repo, "rev-parse", "main"); got != head {
		t.Errorf("main has moved to %s", got)
	}
	for dir, required := range map[string]int{"stores/sql": 1, "cmd/tool": 2} {
		mod := must(t, repo, "show", dir+"/v0.2.0:"+dir+"/go.mod")
		if strings.Contains(mod, "replace") || strings.Contains(mod, "v0.0.0") || strings.Count(mod, " v0.2.0") != required {
			t.Errorf("the tag of %s has\n%s", dir, mod)
		}
		if sum := must(t, repo, "show", dir+"/v0.2.0:"+dir+"/go.sum"); strings.Count(sum, " v0.2.0 ") != required {
			t.Errorf("the tag of %s has the sums\n%s", dir, sum)
		}
	}
	if tags := must(t, repo, "tag"); tags != "cmd/tool/v0.2.0\nstores/sql/v0.2.0\nv0.2.0" {
		t.Errorf("the tags are %s", tags)
	}
	if push := "\n  git push --atomic origin v0.2.0 stores/sql/v0.2.0 cmd/tool/v0.2.0\n"; !strings.HasSuffix(out.String(), push) {
		t.Errorf("it prints\n%s\nand not at the end %s", &out, push)
	}
}

// Each case differs from what can be released in one thing.
func TestWhatCannotBeReleased(t *testing.T) {
	t.Parallel()
	const path = "github.com/lockstep-go/library"
	cases := map[string]struct {
		version string
		file    string // has text instead
		text    string
		after   func(t *testing.T, repo git)
		want    string
	}{
		"no version":              {version: "", want: `"" is no semantic version: write it as v0.2.0`},
		"no v":                    {version: "0.2.0", want: `"0.2.0" is no semantic version`},
		"two numbers":             {version: "v0.2", want: `"v0.2" is no semantic version`},
		"a leading zero":          {version: "v0.02.0", want: `"v0.02.0" is no semantic version`},
		"build metadata":          {version: "v0.2.0+linux", want: `"v0.2.0+linux" is no semantic version`},
		"a major of another path": {version: "v2.0.0", want: "the path of the module must end with /v2"},
		"a changed file": {version: "v0.2.0", want: "the tree has changes: commit or remove them\n M lib.go", after: func(t *testing.T, repo git) {
			write(t, filepath.Join(repo.dir, "lib.go"), "package library\n")
		}},
		"a new file": {version: "v0.2.0", want: "the tree has changes: commit or remove them\n?? new.go", after: func(t *testing.T, repo git) {
			write(t, filepath.Join(repo.dir, "new.go"), "package library\n")
		}},
		"a version that exists": {version: "v0.2.0", want: "the tag v0.2.0 exists: choose the next version", after: func(t *testing.T, repo git) {
			must(t, repo, "tag", "v0.2.0")
		}},
		"a version of a nested module that exists": {version: "v0.2.0", want: "the tag stores/sql/v0.2.0 exists", after: func(t *testing.T, repo git) {
			must(t, repo, "tag", "stores/sql/v0.2.0")
		}},
		"a version without changes": {version: "v0.3.0", want: `CHANGELOG.md has no section "## 0.3.0 - DATE": rename the section Unreleased`},
		"a section of a candidate":  {version: "v0.2.0-rc.1", want: `CHANGELOG.md has no section "## 0.2.0-rc.1 - DATE"`},
		"an empty section":          {version: "v0.2.0", file: "CHANGELOG.md", text: "## 0.2.0\n\n## 0.1.0\n\n- The first.\n", want: "the section 0.2.0 of CHANGELOG.md is empty"},
		"a root that replaces": {version: "v0.2.0", file: "go.mod",
			text: "module " + path + "\n\ngo 1.26.0\n\nreplace " + path + "/stores/sql => ./stores/sql\n",
			want: "go.mod replaces " + path + "/stores/sql by ./stores/sql, and a consumer would not"},
		"another version of a dependency": {version: "v0.2.0", file: "stores/sql/go.mod",
			text: "module " + path + "/stores/sql\n\ngo 1.26.0\n\nreplace driver.test => fork.test v1.0.0\n",
			want: "stores/sql/go.mod replaces driver.test by fork.test v1.0.0"},
		"a module that is not released": {version: "v0.2.0", file: "stores/sql/go.mod",
			text: "module " + path + "/stores/sql\n\ngo 1.26.0\n\nrequire " + path + "/bench v0.0.0\n\nreplace " + path + "/bench => ../../bench\n",
			want: "stores/sql/go.mod replaces " + path + "/bench by ../../bench"},
		"modules that require each other": {version: "v0.2.0", file: "stores/sql/go.mod",
			text: "module " + path + "/stores/sql\n\ngo 1.26.0\n\nrequire " + path + "/cmd/tool v0.0.0\n\nreplace " + path + "/cmd/tool => ../../cmd/tool\n",
			want: "require each other: none can get its tag first"},
		"a package that does not build": {version: "v0.2.0", file: "stores/sql/sql.go",
			text: "package sql\n\nimport \"" + path + "\"\n\nvar Answer = library.Question()\n",
			want: "undefined: library.Question"},
		"a command that does not build": {version: "v0.2.0", file: "cmd/tool/main.go",
			text: "package main\n\nimport \"" + path + "/stores/sql\"\n\nfunc main() { println(sql.Question) }\n",
			want: "undefined: sql.Question"},
		// It builds here, and nowhere else.
		"a file that is not committed": {version: "v0.2.0", file: ".gitignore", text: "lib.go\n", want: "library"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := library()
			if c.file != "" {
				files[c.file] = c.text
			}
			repo := repository(t, files)
			if c.after != nil {
				c.after(t, repo)
			}
			before := state(t, repo)
			var out strings.Builder
			err := run(&out, repo.dir, c.version, true)
			if err == nil {
				t.Fatalf("it is released:\n%s", &out)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is\n%v\nand does not say\n%s", err, c.want)
			}
			if after := state(t, repo); after != before {
				t.Errorf("the repository was\n%s\nand is\n%s", before, after)
			}
		})
	}
}

// TestThisRepositoryCanBeReleased makes a dry run over the files of this tree, those that are not
// committed included. A section for the version is all that is added.
func TestThisRepositoryCanBeReleased(t *testing.T) {
	t.Parallel()
	here := git{dir: "../.."}
	if _, err := os.Stat(filepath.Join(here.dir, ".git")); err != nil {
		t.Skip("this tree is no checkout: there is nothing to release")
	}
	files := map[string]string{}
	for name := range strings.SplitSeq(must(t, here, "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00") {
		text, err := os.ReadFile(filepath.Join(here.dir, name))
		if name == "" || os.IsNotExist(err) { // removed, and not committed
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
	const version = "v0.999.0"
	files["CHANGELOG.md"] = "## 0.999.0\n\n- A release that a test tries.\n"
	repo := repository(t, files)
	var out strings.Builder
	if err := run(&out, repo.dir, version, false); err != nil {
		t.Fatal(err)
	}
	t.Logf("it prints\n%s", &out)
	modules := 0
	err := filepath.WalkDir(repo.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "go.mod" {
			return err
		}
		dir, err := filepath.Rel(repo.dir, filepath.Dir(path))
		if err != nil || slices.Contains(unreleased, dir) {
			return err
		}
		modules++
		if tag := (module{Dir: filepath.ToSlash(dir)}).tag(version); !strings.Contains(out.String(), "  tag       "+tag+"\n") {
			t.Errorf("it does not print the tag %s:\n%s", tag, &out)
		}
		return nil
	})
	if err != nil || modules < 2 {
		t.Errorf("%d modules, %v: is the test looking at the right thing?", modules, err)
	}
	if command := "  install   github.com/lockstep-go/lockstep/examples/quickstart@" + version + "\n"; !strings.Contains(out.String(), command) {
		t.Errorf("it prints\n%s\nand not\n%s", &out, command)
	}
}
