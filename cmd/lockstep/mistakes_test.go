//go:build linux

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// What an operator may get wrong: the exit code, and what the message says.
func TestMistakesAreExplained(t *testing.T) {
	s := redistest.Start(t)
	must(t, url(s), "acquire", "-holder", "me", "-ttl", "29s", "held")
	const closed = "redis://127.0.0.1:1"
	const three = closed + " redis://127.0.0.1:2 redis://127.0.0.1:3"
	for name, c := range map[string]struct {
		store string
		args  []string
		code  int
		says  string
	}{
		"an empty name":                   {url(s), []string{"test", ""}, 64, "the name is empty"},
		"an empty name for run":           {url(s), []string{"run", "", "--", "true"}, 64, "the name is empty"},
		"a kind of findings with a slip":  {url(s), []string{"doctor", "-allow", "evictions"}, 64, "no such kind"},
		"a strategy with a slip":          {url(s), []string{"doctor", "-strategy", "single2"}, 64, "choose one of"},
		"a semaphore without permits":     {url(s), []string{"run", "-strategy", "semaphore", "s", "--", "true"}, 64, "-permits"},
		"no time for an answer":           {url(s), []string{"test", "-timeout", "0", "held"}, 64, "-timeout"},
		"a print that is too short":       {url(s), []string{"release", "held", "-print", "abc", "-yes"}, 64, "no print"},
		"a print of no hold":              {url(s), []string{"release", "held", "-print", "0123456789abcdef", "-yes"}, 75, "no hold of \"held\" has this print"},
		"the line about a failed release": {url(s), []string{"release", "held", "-print", "0123456789abcdef", "-yes"}, 75, `msg="forced release failed"`},
		"a page without a prefix":         {url(s), []string{"serve", "-listen", "127.0.0.1:0"}, 64, "give -prefix"},
		"a page of no store":              {closed, []string{"serve", "-listen", "127.0.0.1:0", "-prefix", "a"}, 69, "refused"},
		"no URL":                          {"secret", []string{"list"}, 64, "is no URL"},
		"an @ in a password":              {"postgres://u:sec@ret@127.0.0.1:1/db", []string{"list"}, 64, "percent-encode"},
		"a port that is none":             {"nats://u:secret@h1:4222,h2:port", []string{"list"}, 64, "port"},
		"a quorum of a third":             {three, []string{"test", "-quorum", "1", "a"}, 64, "quorum 1 of 3 nodes is not within 2 and 3 (see -quorum)"},
		"a quorum of more than all":       {three, []string{"test", "-quorum", "9", "a"}, 64, "quorum 9 of 3 nodes is not within 2 and 3 (see -quorum)"},
		"a quorum for run":                {three, []string{"run", "-quorum", "1", "a", "--", "true"}, 64, "quorum 1 of 3 nodes is not within 2 and 3 (see -quorum)"},
		"a quorum for list":               {three, []string{"list", "-quorum", "4"}, 64, "quorum 4 of 3 nodes"},
		"a quorum for inspect":            {three, []string{"inspect", "-quorum", "1", "a"}, 64, "quorum 1 of 3 nodes"},
		"a quorum for release":            {three, []string{"release", "-quorum", "-1", "a"}, 64, "quorum -1 of 3 nodes"},
		"a quorum for doctor":             {three, []string{"doctor", "-quorum", "9"}, 64, "quorum 9 of 3 nodes"},
		"a quorum of one store":           {closed, []string{"test", "-quorum", "2", "a"}, 64, "quorum 2 of 1 nodes is not within 1 and 1"},
		"a quorum of all":                 {three, []string{"test", "-quorum", "3", "a"}, 69, "refused"},
		"SQL for Redis":                   {closed, []string{"install", "-print"}, 64, "needs no SQL"},
		"the rights of a user of Redis":   {closed, []string{"install", "-grant", "app"}, 64, "choosing-a-store.md"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, err := run(t, c.store, c.args...)
			if code != c.code || !strings.Contains(err, c.says) || strings.Contains(err, "ret@") || strings.Contains(err, "secret@") {
				t.Errorf("%d: %s; want %d, and %q", code, err, c.code, c.says)
			}
		})
	}
	if code, out, err := run(t, url(s), "list", "-prefix", "nope/"); code != 0 || !strings.Contains(out, "matches") {
		t.Errorf("a prefix that nothing has: %d: %s%s", code, out, err)
	}
}

// The parameter of the URL is the option of the programs.
func TestAServerWithoutScripts(t *testing.T) {
	s := redistest.Start(t)
	s.Do("ACL", "SETUSER", "plain", "on", "nopass", "~*", "&*", "+@all", "-@scripting")
	store := "redis://plain:any@" + s.Addr()
	for parameters, refused := range map[string]bool{"": true, "?scripts=on": true, "?scripts=off": false, "?scripts=off&wakes=off": false} {
		code, _, err := run(t, store+parameters, "run", "-strategy", "single", "key"+parameters, "--", "true")
		if code != 0 || strings.Contains(err, "evalsha") != refused { // it releases by a script
			t.Errorf("%q: exit %d: %s", parameters, code, err)
		}
	}
}

// What release shows can be typed as it is.
func TestTheCommandThatIsShownFreesTheLock(t *testing.T) {
	s := redistest.Start(t)
	s.Do("SET", "app:other", "of other software", "PX", "29000")
	must(t, url(s), "-key-prefix", "app:", "acquire", "-ttl", "29s", "our's")
	for _, name := range []string{"other", "our's"} {
		_, out, _ := run(t, url(s), "-key-prefix", "app:", "release", name)
		free(t, url(s), out, "-yes")
		_, out, _ = run(t, url(s), "-key-prefix", "app:", "inspect", name)
		if !strings.Contains(out, "nobody: closed by") {
			t.Fatalf("%s after the release: %s", name, out)
		}
		free(t, url(s), out, "-yes")
		must(t, url(s), "-key-prefix", "app:", "test", name)
	}
	c := prepare(t, url(s), "inspect", "our's")
	c.Env = append(c.Env, "LOCKSTEP_KEY_PREFIX=app:")
	must(t, url(s), "-key-prefix", "app:", "acquire", "-ttl", "29s", "our's")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if code := c.code(); code != 0 || strings.Contains(c.out.String(), "-key-prefix") || !strings.Contains(c.out.String(), "held by") {
		t.Errorf("with LOCKSTEP_KEY_PREFIX = %d: %s", code, c.out.String())
	}
}

// free types what text has behind "lockstep".
func free(t *testing.T, store, text string, more ...string) {
	t.Helper()
	_, line, found := strings.Cut(text, ": lockstep ")
	if !found {
		t.Fatalf("no command in %s", text)
	}
	words, err := exec.Command("sh", "-c", "printf '%s\\n' "+strings.TrimSpace(line)).Output()
	if err != nil {
		t.Fatal(err)
	}
	must(t, store, append(strings.Split(strings.TrimSpace(string(words)), "\n"), more...)...)
}

func TestAnOldFileForATokenGetsTheRightsOfASecret(t *testing.T) {
	s := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, url(s), "acquire", "-token-file", file, "a")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	must(t, url(s), "release", "-token-file", file, "a")
	must(t, url(s), "acquire", "-token-file", file, "--", "-a")
	must(t, url(s), "release", "-token-file", file, "--", "-a")
}

func TestThereAreMoreThanTheLimit(t *testing.T) {
	s := redistest.Start(t)
	for _, name := range []string{"a1", "a2", "a3"} {
		must(t, url(s), "acquire", "-ttl", "29s", name)
	}
	for _, more := range [][]string{nil, {"-held-over", "1ms"}} {
		_, out, err := run(t, url(s), append([]string{"list", "-prefix", "a", "-limit", "2"}, more...)...)
		if strings.Count(out, "\n") != 3 || !strings.Contains(err, "more than 2") {
			t.Errorf("%v: %s%s", more, out, err)
		}
		_, out, err = run(t, url(s), append([]string{"list", "-prefix", "a", "-limit", "3"}, more...)...)
		if strings.Count(out, "\n") != 4 || err != "" {
			t.Errorf("%v: %s%s", more, out, err)
		}
	}
	if out := must(t, url(s), "inspect", "a1"); !strings.Contains(out, "held for   ≤") {
		t.Errorf("inspect: %s", out)
	}
	if out := must(t, url(s), "inspect", "-json", "a1"); !strings.Contains(out, `"held_at_most_ms":`) {
		t.Errorf("inspect -json: %s", out)
	}
}

func TestWatchGoesOnWhenTheStoreIsBack(t *testing.T) {
	s := redistest.Start(t)
	w := begin(t, url(s), "watch", "-timeout", "100ms", "-every", "50ms", "deploy")
	await(t, "the first state", func() bool { return strings.Contains(w.out.String(), "free") })
	s.Pause()
	await(t, "no answer", func() bool { return strings.Contains(w.err.String(), "did not answer within 100ms") })
	s.Resume()
	must(t, url(s), "acquire", "-holder", "me", "deploy")
	await(t, "the change", func() bool { return strings.Contains(w.out.String(), "me") })
	_ = w.Process.Signal(syscall.SIGTERM)
	if code := w.code(); code != 0 {
		t.Errorf("watch = %d: %s", code, w.err.String())
	}
}

func TestAPageForARefusedUserDoesNotStart(t *testing.T) {
	s := redistest.Start(t)
	s.Do("ACL", "SETUSER", "u", "on", ">right", "~*", "&*", "+@all")
	store := "redis://u:wrong@" + s.Addr()
	if code, _, err := run(t, store, "serve", "-prefix", "a", "-listen", "127.0.0.1:0"); code != 77 {
		t.Errorf("serve = %d: %s", code, err)
	}
	expect(t, doctor(t, store), "refused", "WRONGPASS", false)
}

func TestAPageOnAPortThatIsInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := redistest.Start(t)
	for address, want := range map[string]int{l.Addr().String(): 69, "nowhere": 64, "127.0.0.1:port": 64} {
		if code, _, err := run(t, url(s), "serve", "-prefix", "a", "-listen", address); code != want {
			t.Errorf("serve -listen %s = %d: %s; want %d", address, code, err, want)
		}
	}
}

// The least rights are printed by the command, and are enough.
func TestARoleThatIsGivenItsRightsLocks(t *testing.T) {
	s := pgtest.Start(t)
	store := postgres(s.DSN())
	sql := func(text string) {
		t.Helper()
		cmd := exec.Command("psql", "-v", "ON_ERROR_STOP=1", store)
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	sql(`CREATE ROLE "the app" LOGIN; REVOKE CREATE ON DATABASE postgres FROM PUBLIC`)
	app := strings.Replace(store, "postgres@", "the%20app@", 1)
	if code, _, err := run(t, app, "install"); code != 77 {
		t.Errorf("install without the right = %d: %s", code, err)
	}
	sql(must(t, store, "install", "-print"))
	expect(t, doctor(t, app), "refused", "permission denied", false)
	sql(must(t, store, "install", "-grant", "the app"))
	freeByHand(t, app)
	sql(`CREATE ROLE looker LOGIN; GRANT USAGE ON SCHEMA lockstep TO looker; GRANT SELECT ON ALL TABLES IN SCHEMA lockstep TO looker`)
	looker := strings.Replace(store, "postgres@", "looker@", 1)
	must(t, app, "acquire", "-holder", "me", "-ttl", "29s", "held")
	for _, look := range [][]string{{"list"}, {"inspect", "held"}} {
		if out := must(t, looker, look...); !strings.Contains(out, "me") {
			t.Errorf("%v of a role that only looks: %s", look, out)
		}
	}
	if code, _, err := run(t, looker, "run", "-n", "free", "--", "true"); code != 77 {
		t.Errorf("run of a role that only looks = %d: %s", code, err)
	}
}
