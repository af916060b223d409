package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/proof/redistest"
)

// aLockstep is a folder with a program lockstep for the commands of a test.
func aLockstep(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	if err := os.Symlink(path(os.Executable()), filepath.Join(folder, "binary")); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/bash\nexec -a lockstep " + filepath.Join(folder, "binary") + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(folder, "lockstep"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

// A run inside of a run that would wait for its own end is refused: without that, this test waits until
// await gives up.
func TestARunInsideOfARunDoesNotWaitForItself(t *testing.T) {
	one, two := redistest.Start(t), redistest.Start(t)
	nodes := redistest.StartN(t, 3)
	var quorum []string
	for _, s := range nodes {
		quorum = append(quorum, url(s))
	}
	bin := aLockstep(t)
	const lost = 74
	_, port, _ := strings.Cut(one.Addr(), ":")
	for _, row := range []struct {
		name, store string
		call        string
		code        int
	}{
		{"itself", url(one), "run a -- lockstep run a -- true", 64},
		{"itself, without waiting", url(one), "run a -- lockstep run -n -E 0 a -- true", 64},
		{"through another lock", url(one), "run b -- lockstep run c -- lockstep run b -- true", 64},
		{"a script that takes it", url(one), "run d -- lockstep acquire d", 64},
		{"the same server by another name", url(one), "run e -- lockstep -store redis://localhost:" + port + " run e -- true", 64},
		{"the same key by a prefix", url(one), "run p:f -- lockstep -key-prefix p: run f -- true", 64},
		{"a label that others have too", url(one), "run -holder me g -- lockstep run -holder me g -- true", 64},
		{"a quorum", strings.Join(quorum, " "), "run -max-ttl 3s -ttl 3s -w 1m h -- lockstep run -max-ttl 3s -ttl 3s h -- true", 64},
		{"all permits", url(one), "-strategy semaphore -permits 2 run i -- lockstep -strategy semaphore -permits 2 run i -- " +
			"lockstep -strategy semaphore -permits 2 run i -- true", 64},
		{"a writer in a reader", url(one), "-strategy rw-readers run j -- lockstep -strategy rw-writers run j -- true", 64},
		{"a reader in a writer", url(one), "-strategy rw-writers run k -- lockstep -strategy rw-readers run k -- true", 64},
		{"a reader in a reader", url(one), "-strategy rw-readers run r -- lockstep -strategy rw-readers run r -- true", 64},
		{"a script that takes a reader's lock in a reader", url(one), "-strategy rw-readers run t -- lockstep -strategy rw-readers acquire -w 1m t", 64},

		{"another lock", url(one), "run l -- lockstep run m -- true", 0},
		{"another store", url(one), "run n -- lockstep -store " + url(two) + " run n -- true", 0},
		{"another prefix", url(one), "run o -- lockstep -key-prefix p: run o -- true", 0},
		{"a second permit", url(one), "-strategy semaphore -permits 2 run q -- lockstep -strategy semaphore -permits 2 run q -- true", 0},
		{"a reader in a reader, without waiting", url(one), "-strategy rw-readers run u -- lockstep -strategy rw-readers run -n u -- true", 0},
		{"what was lost meanwhile", url(one), "run -keep-going -ttl 29s s -- sh -c 'redis-cli -p " + port + " del s; lockstep run s -- true; exit 3'", lost},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var c *call
			var code int
			await(t, "it ends, and a busy machine has not lost the lock of the outer run", func() bool {
				c = prepare(t, row.store)
				c.Path, c.Args = "/bin/bash", []string{"bash", "-c", "lockstep " + row.call}
				c.Env = append(c.Env, "PATH="+bin+":"+os.Getenv("PATH"))
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Process.Kill() })
				await(t, "it ends", c.ended)
				code = c.code()
				return code != 74 || row.code == lost
			})
			if row.code == lost && code == 3 {
				code = lost // the outer run has not seen it
			}
			if code != row.code || (code == 64) != strings.Contains(c.err.String(), "would wait for itself") {
				t.Errorf("exit %d, want %d: %s", code, row.code, c.err.String())
			}
		})
	}
}
