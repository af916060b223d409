package stamp

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// repository is a new one with two commits. The second changes what is given.
func repository(t *testing.T, changes map[string]string) (dir string, first Stamp) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("SKIPPED: there is no git")
	}
	dir = t.TempDir()
	commit := func(files map[string]string) {
		for name, text := range files {
			write(t, dir, name, text)
		}
		for _, args := range [][]string{
			{"init", "--quiet"}, {"add", "--all"},
			{"-c", "user.name=Test", "-c", "user.email=test@invalid", "-c", "commit.gpgSign=false", "commit", "--quiet", "-m", "Change"},
		} {
			if _, err := git(dir, args...); err != nil {
				t.Fatal(err)
			}
		}
	}
	commit(map[string]string{"go.mod": "module m\n", "locker/a.go": "package locker\n", "docs/a.md": "text\n", "other/a.go": "package other\n"})
	first = Now(dir, "locker")
	if len(changes) > 0 {
		commit(changes)
	}
	return dir, first
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsWrittenIsFound(t *testing.T) {
	for _, s := range []Stamp{{"2026-11-27", "0123456789ab", false}, {"2026-11-27", "0123456", true}} {
		if got := Find("before\n" + s.String() + ", by `make it`.\n"); !slices.Equal(got, []Stamp{s}) {
			t.Errorf("Find = %+v; want %+v", got, s)
		}
	}
}

func TestAChangeOfWhatIsMeasuredIsToldAndNoOther(t *testing.T) {
	for name, c := range map[string]struct {
		file  string
		stale bool
	}{
		"a file of a package":      {"locker/a.go", true},
		"a new file":               {"locker/b.go", true},
		"a version":                {"go.mod", true},
		"a test":                   {"locker/a_test.go", false},
		"a suite":                  {"locker/lockertest/a.go", false},
		"a page":                   {"docs/a.md", false},
		"a package not measured":   {"other/a.go", false},
		"a page beside a package":  {"locker/a.md", false},
		"a module below a package": {"locker/sub/go.mod", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, first := repository(t, map[string]string{c.file: "package changed\n"})
			write(t, dir, "page.md", first.String()+".\n")
			lines, stale, err := Report(dir, "page.md", "locker")
			if err != nil || stale != c.stale || len(lines) != 1 || strings.Contains(lines[0], "OLDER") != c.stale || c.stale && !strings.Contains(lines[0], c.file) {
				t.Errorf("Report = %q, %v, %v", lines, stale, err)
			}
		})
	}
}

func TestChangesThatAreNotCommittedAreToldToo(t *testing.T) {
	dir, first := repository(t, nil)
	write(t, dir, "locker/a.go", "package changed\n")
	if files, err := first.Since(dir, "locker"); err != nil || !slices.Equal(files, []string{"locker/a.go"}) {
		t.Errorf("Since = %q, %v", files, err)
	}
	for _, below := range []string{"docs", "locker"} {
		if files, err := first.Since(filepath.Join(dir, below), "locker"); err != nil || !slices.Equal(files, []string{"locker/a.go"}) {
			t.Errorf("Since in %s = %q, %v", below, files, err)
		}
		if now := Now(filepath.Join(dir, below), "locker"); !now.Changed {
			t.Errorf("Now in %s = %+v", below, now)
		}
	}
	if now := Now(dir, "locker"); !now.Changed || now.Commit != first.Commit {
		t.Errorf("Now = %+v after %+v; want it to say that there are changes", now, first)
	}
}

// A clone that is shallow lacks the commit, and an archive lacks git.
func TestWithoutTheHistoryNothingIsCalledUnchanged(t *testing.T) {
	dir, _ := repository(t, nil)
	archive := t.TempDir()
	for _, in := range []string{dir, archive} {
		write(t, in, "page.md", Stamp{"2026-11-27", "0123456789ab", false}.String()+".\n")
		lines, stale, err := Report(in, "page.md", "locker")
		if err != nil || !stale || len(lines) != 1 || !strings.Contains(lines[0], "NOT KNOWN") {
			t.Errorf("Report = %q, %v, %v", lines, stale, err)
		}
	}
	if _, err := Now(archive).Since(dir); !errors.Is(err, ErrNoHistory) {
		t.Errorf("Since an unknown commit = %v", err)
	}
}

func TestAPageWithoutAStampIsAnError(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"", "Made on 2026-11-27.\n", "Made on 2026-11-27 at commit `later`.\n"} {
		write(t, dir, "page.md", text)
		if _, _, err := Report(dir, "page.md"); err == nil {
			t.Errorf("%q is no error", text)
		}
	}
}

func TestVersionsAreThoseOfTheModules(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "go.mod", "module m\n\nrequire (\n\tgithub.com/redis/go-redis/v9 v9.1.0\n\tgithub.com/other/thing v1.0.0\n)\n")
	write(t, dir, "backends/pgxstore/go.mod", "module p\n\nrequire github.com/jackc/pgx/v5 v5.2.0\n")
	if got := Versions(dir); got != "jackc/pgx/v5 v5.2.0, redis/go-redis/v9 v9.1.0" {
		t.Errorf("Versions = %s", got)
	}
}
