// Release makes the tags of a release, after a consumer has used them in a throw-away clone.
//
//	go run ./proof/release [-tag] [-stale] v0.2.0
//	go run ./proof/release -figures
//
// It is what `make release` calls. Without -tag it is a dry run: everything happens in the clone, and
// the repository stays as it is. With -tag the same happens first, and then the tags are copied from
// the clone into the repository. It never pushes. docs/releasing.md has the steps around it.
//
// It refuses a tree whose pages have figures of older code, unless -stale accepts them; -figures only
// tells which they are.
//
// Every module of the repository gets the same version, except those in unreleased. While they are
// developed, nested modules replace each other by folders. The go command ignores that in a
// dependency, and `go install` refuses it. So the commit with the tag of a nested module has no such
// replace, and requires the version. This commit is on no branch: main keeps its replace.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/lockstep-go/lockstep/proof/stamp"
)

// The modules that get no tag.
var unreleased = []string{"bench", "proof/differential"}

func main() {
	tag := flag.Bool("tag", false, "also make the tags in this repository")
	stale := flag.Bool("stale", false, "accept pages whose figures are older than the code")
	only := flag.Bool("figures", false, "only tell which pages have figures that are older than the code")
	flag.Parse()
	err := figures(os.Stdout, ".", *stale || *only)
	if err == nil && !*only {
		err = run(os.Stdout, ".", flag.Arg(0), *tag)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// figures prints how old the figures of the pages are. Those of older code are an error, unless they are
// accepted.
func figures(out io.Writer, dir string, accepted bool) error {
	old := false
	for _, page := range stamp.Pages {
		lines, stale, err := stamp.Report(dir, page, stamp.Measured...)
		if err != nil {
			return err
		}
		for _, line := range lines {
			say(out, "%s\n", line)
		}
		old = old || stale
	}
	if old && !accepted {
		return errors.New("figures are of older code: make them again (make matrix, make headlines), or accept them (STALE=yes)")
	}
	return nil
}

// run releases the version of the repository at dir, and prints each step when it is done.
func run(out io.Writer, dir, version string, tag bool) error {
	repo := git{dir: dir}
	head, modules, err := check(repo, version)
	if err != nil {
		return err
	}
	say(out, "%s %s at %.12s\n", modules[0].Path, version, head)

	temp, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	c, err := newClone(repo, head, temp, modules[0].Path, !tag)
	if err != nil {
		return err
	}
	var tags []string
	for _, m := range modules {
		if err := c.tag(m, version, modules); err != nil {
			return err
		}
		tags = append(tags, m.tag(version))
		say(out, "  tag       %s\n", m.tag(version))
	}
	for _, m := range modules {
		packages, err := c.consume(m, version, modules)
		if err != nil {
			return err
		}
		if packages > 0 {
			say(out, "  go get    %s@%s: its packages build in another module: %d\n", m.Path, version, packages)
		}
		commands, err := c.install(m, version)
		if err != nil {
			return err
		}
		for _, command := range commands {
			say(out, "  install   %s@%s\n", command, version)
		}
	}

	if !tag {
		say(out, "dry run: this repository is unchanged. To make the tags: make release VERSION=%s TAG=yes\n", version)
		return nil
	}
	if err := repo.copyTags(c.git.dir, tags); err != nil {
		return err
	}
	say(out, "put the artefacts of this commit, artefacts/*, beside the release\n")
	say(out, "the tags are made, and not pushed. A version that was fetched once can't be changed. To push:\n")
	say(out, "  git push --atomic origin %s\n", strings.Join(tags, " "))
	return nil
}

// say writes a line of the report. An error of the terminal does not stop a release.
func say(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }
