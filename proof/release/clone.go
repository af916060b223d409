package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// clone is a throw-away clone, and an environment in which the go command finds the modules of the
// repository there, under the address that consumers use.
type clone struct {
	git  git
	temp string
	env  []string
}

// newClone makes a clone at temp. For a dry run nobody signs commits and tags.
func newClone(repo git, head, temp, root string, dry bool) (*clone, error) {
	dir := filepath.Join(temp, "clone")
	if _, err := repo.run("clone", "--quiet", ".", dir); err != nil {
		return nil, err
	}
	c := &clone{git: git{dir: dir}, temp: temp}
	if dry {
		c.git.config = []string{"-c", "user.name=dry run", "-c", "user.email=dry-run@invalid", "-c", "commit.gpgSign=false", "-c", "tag.gpgSign=false"}
	} else {
		for _, key := range []string{"user.name", "user.email", "user.signingKey"} {
			if value, err := repo.run("config", key); err == nil {
				c.git.config = append(c.git.config, "-c", key+"="+value)
			}
		}
	}
	if _, err := c.git.run("checkout", "--quiet", "--detach", head); err != nil {
		return nil, err
	}
	text, err := command(repo.dir, nil, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return nil, err
	}
	cache, proxy, _ := strings.Cut(text, "\n")
	before, _ := strconv.Atoi(os.Getenv("GIT_CONFIG_COUNT"))
	c.env = []string{
		// The versions of the dry run must not reach the cache of this machine, where the real ones come
		// later. What others have released comes from there, so that no network is needed.
		"GOMODCACHE=" + filepath.Join(temp, "cache"),
		"GOPROXY=file://" + filepath.ToSlash(cache) + "/cache/download," + proxy,
		"GOSUMDB=off",
		"GOPRIVATE=" + root,
		fmt.Sprintf("GIT_CONFIG_KEY_%d=url.file://%s.insteadOf", before, filepath.ToSlash(dir)),
		fmt.Sprintf("GIT_CONFIG_VALUE_%d=https://%s", before, root),
		fmt.Sprintf("GIT_CONFIG_COUNT=%d", before+1),
		"GOWORK=off",
		"GOBIN=" + filepath.Join(temp, "bin"),
		// With -trimpath the build cache holds in every folder. Nobody runs the commands, so they are
		// linked without what a debugger needs: it takes four times as long as the rest of the link.
		"GOFLAGS=-trimpath -modcacherw -buildvcs=false -ldflags=-s",
	}
	return c, nil
}

func (c *clone) golang(dir string, args ...string) (string, error) {
	return command(dir, c.env, "go", args...)
}

// tag tags a module. A module that requires others of the repository gets a commit before.
func (c *clone) tag(m module, version string, modules []module) error {
	edit := []string{"mod", "edit"}
	for _, r := range m.replace {
		edit = append(edit, "-dropreplace="+r.path)
	}
	for _, other := range modules {
		if slices.Contains(m.require, other.Path) {
			edit = append(edit, "-require="+other.Path+"@"+version)
		}
	}
	if len(edit) > 2 {
		dir := filepath.Join(c.git.dir, m.Dir)
		if _, err := c.golang(dir, edit...); err != nil {
			return err
		}
		if _, err := c.golang(dir, "mod", "tidy"); err != nil {
			return err
		}
		if _, err := c.git.run("add", "--all"); err != nil { // go.sum may be new
			return err
		}
		message := fmt.Sprintf("Require %s in %s\n\nThe tag of a nested module names a commit that replaces no module by a folder.", version, m.Dir)
		if _, err := c.git.run("commit", "--quiet", "-m", message); err != nil {
			return err
		}
	}
	_, err := c.git.run("tag", "--annotate", "-m", m.Path+" "+version, m.tag(version))
	return err
}

// consume imports all public packages of a module in a module of its own, and builds them. It returns
// how many there are.
func (c *clone) consume(m module, version string, modules []module) (int, error) {
	packages, err := c.list(m, `{{if and .GoFiles (ne .Name "main")}}{{.ImportPath}}{{end}}`)
	if err != nil || len(packages) == 0 {
		return 0, err
	}
	dir, err := os.MkdirTemp(c.temp, "consumer")
	if err != nil {
		return 0, err
	}
	var source strings.Builder
	source.WriteString("package consumer\n")
	for _, p := range packages {
		fmt.Fprintf(&source, "\nimport _ %q\n", p)
	}
	if err := os.WriteFile(filepath.Join(dir, "consumer.go"), []byte(source.String()), 0o600); err != nil {
		return 0, err
	}
	for _, args := range [][]string{{"mod", "init", "consumer.test"}, {"get", m.Path + "@" + version}, {"build", "-mod=mod", "."}} {
		if _, err := c.golang(dir, args...); err != nil {
			return 0, fmt.Errorf("a consumer of %s: %w", m.Path, err)
		}
	}
	// A nested module brings the others in this version, and no older one.
	for _, other := range modules {
		if !slices.Contains(m.require, other.Path) {
			continue
		}
		got, err := c.golang(dir, "list", "-m", "-f", "{{.Version}}", other.Path)
		if err != nil {
			return 0, err
		}
		if got != version {
			return 0, fmt.Errorf("a consumer of %s gets %s of %s, not %s", m.Path, got, other.Path, version)
		}
	}
	return len(packages), nil
}

// install installs the commands of a module as a user does, and returns them.
func (c *clone) install(m module, version string) ([]string, error) {
	commands, err := c.list(m, `{{if eq .Name "main"}}{{.ImportPath}}{{end}}`)
	if err != nil || len(commands) == 0 {
		return nil, err
	}
	args := []string{"install"}
	for _, command := range commands {
		args = append(args, command+"@"+version)
	}
	if _, err := c.golang(c.temp, args...); err != nil {
		return nil, err
	}
	return commands, nil
}

// list lists the packages of a module that are for consumers.
func (c *clone) list(m module, format string) ([]string, error) {
	text, err := c.golang(filepath.Join(c.git.dir, m.Dir), "list", "-f", format, "./...")
	return slices.DeleteFunc(strings.Fields(text), func(p string) bool {
		programs := strings.Contains(p, "/proof/") && !strings.HasSuffix(p, "/proof/drivertest")
		return programs || strings.Contains(p+"/", "/internal/")
	}), err
}

// git runs git in a folder.
type git struct {
	dir    string
	config []string
}

func (g git) run(args ...string) (string, error) {
	return command(g.dir, nil, "git", slices.Concat(g.config, args)...)
}

// copyTags copies all tags or none.
func (g git) copyTags(from string, tags []string) error {
	args := []string{"fetch", "--quiet", "--no-tags", "--atomic", from}
	for _, tag := range tags {
		args = append(args, "refs/tags/"+tag+":refs/tags/"+tag)
	}
	_, err := g.run(args...)
	return err
}

// command returns what a program prints. An error has what it says.
func command(dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	// In a hook, git names the repository of the hook in the environment.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "GIT_DIR=") || strings.HasPrefix(v, "GIT_WORK_TREE=") || strings.HasPrefix(v, "GIT_INDEX_FILE=")
	})
	cmd.Env = append(cmd.Env, env...)
	var says strings.Builder
	cmd.Stderr = &says
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, strings.TrimSpace(says.String()))
	}
	return strings.TrimRight(string(out), "\r\n"), nil
}
