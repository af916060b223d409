package main

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// inContainer makes a call of bash as process 1 of a namespace of processes. There, "$LOCKSTEP" is the
// program to be called as lockstep.
func inContainer(t *testing.T, store, script string) *call {
	t.Helper()
	if out, err := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "true").CombinedOutput(); err != nil {
		redistest.Missing(t, "unshare(1) must be permitted: %v: %s", err, out)
	}
	c := prepare(t, store)
	c.Env = append(c.Env, "LOCKSTEP="+c.Path)
	bin, err := exec.LookPath("unshare")
	if err != nil {
		t.Fatal(err)
	}
	c.Path, c.Args = bin, []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", script}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	return c
}

// orphans has 40 of them, which have ended after a moment. It tells when none was a zombie any more, in
// µs, and how long a look took at most, which starts two processes: what the machine adds to everything else.
const orphans = `
for i in $(seq 40); do (setsid true & setsid sleep 0.05 &); done
now() { echo ${EPOCHREALTIME/[.,]/}; }
began=$(now) still=0 end=0 zombies=40
while [ $zombies != 0 -o $((end-began)) -lt 300000 ] && [ $((end-began)) -lt 60000000 ]; do
	sleep 0.1
	look=$(now)
	zombies=$(cat /proc/[0-9]*/stat 2>/dev/null | grep -c ") Z ")
	end=$(now)
	[ $((end-look)) -gt $still ] && still=$((end-look))
done
echo "zombies $zombies $((end-began)) $still"
exit 7`

func TestProcess1WaitsForOrphans(t *testing.T) {
	s := redistest.Start(t)
	for name, how := range map[string]string{
		"it is process 1":            `exec -a lockstep "$LOCKSTEP" run k -- bash -c "$SCRIPT"`,
		"process 1 waits for nobody": `(exec -a lockstep "$LOCKSTEP" run k2 -- bash -c "$SCRIPT") & exec sleep 600`,
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func() (took, limit time.Duration) {
				c := inContainer(t, url(s), "export SCRIPT='"+orphans+"'\n"+how)
				await(t, "it ends, or tells", func() bool { return c.ended() || strings.Contains(c.out.String(), "zombies ") })
				var zombies, after, still int
				if _, err := fmt.Sscanf(c.out.String(), "zombies %d %d %d\n", &zombies, &after, &still); err != nil || zombies > 0 {
					t.Fatalf("%s%s%v", c.out.String(), c.err.String(), err)
				}
				if !strings.Contains(how, "sleep 600") {
					if code := c.code(); code != 7 || c.err.String() != "" {
						t.Fatalf("exit %d: %s", code, c.err.String())
					}
				}
				return time.Duration(after) * time.Microsecond, time.Second + 4*time.Duration(still)*time.Microsecond
			})
		})
	}
}

// Whatever is reaped, the code of the command is never taken for that of an orphan.
func TestProcess1TellsTheCodeOfItsCommand(t *testing.T) {
	s := redistest.Start(t)
	rounds := 8
	if full.Size() {
		rounds = 200
	}
	for i := range rounds {
		want := 1 + rand.IntN(60)
		c := inContainer(t, url(s), fmt.Sprintf(`exec -a lockstep "$LOCKSTEP" run k%d -- bash -c '
			for i in $(seq 10); do (setsid true & true &); done; (exit 3); exit %d'`, i, want))
		if code := c.code(); code != want {
			t.Errorf("round %d: exit %d, want %d: %s%s", i, code, want, c.out.String(), c.err.String())
		}
	}
}

// The grace is ten minutes: a release that waits for it would come after all tests.
func TestAReleaseDoesNotWaitForZombies(t *testing.T) {
	s := redistest.Start(t)
	const flags = "run -ttl 30m -max-ttl 30m -grace 10m "
	t.Run("process 1 waits for nobody", func(t *testing.T) {
		c := inContainer(t, url(s), `((exec -a lockstep "$LOCKSTEP" `+flags+`a -- sh -c 'sleep 600 & sleep 600 & exit 4' >/dev/null); echo code $? >&2) & exec sleep 600`)
		await(t, "it ends", func() bool { return strings.Contains(c.err.String(), "code ") })
		if !strings.Contains(c.err.String(), "code 4\n") || inspect(t, url(s), "a").Held {
			t.Errorf("%s", c.err.String())
		}
	})
	t.Run("the parent has left the group, and waits for nobody", func(t *testing.T) {
		mark := fmt.Sprint("zombies-", rand.Uint64())
		call := strings.Fields(flags + "-holder " + mark + " b -- sh -c")
		c := begin(t, url(s), append(call, "(sleep 0.05 & exec setsid sleep 600 >/dev/null 2>&1) & sleep 0.3; exit 4")...)
		t.Cleanup(func() {
			for _, pid := range living(t, "LOCKSTEP_HOLDER="+mark) {
				if n, err := strconv.Atoi(pid); err == nil {
					_ = syscall.Kill(n, syscall.SIGKILL)
				}
			}
		})
		await(t, "it ends", c.ended)
		if code := c.code(); code != 4 || inspect(t, url(s), "b").Held {
			t.Errorf("exit %d: %s", code, c.err.String())
		}
	})
}

// A keeper would end with process 1. So lockstep stays.
func TestProcess1StaysUntilAtLeastIsOver(t *testing.T) {
	s := redistest.Start(t)
	began := time.Now()
	c := inContainer(t, url(s), `exec -a lockstep "$LOCKSTEP" run -ttl 10m -max-ttl 10m -at-least 1 k -- sh -c 'exit 5'`)
	if code := c.code(); code != 5 || time.Since(began) < time.Second || inspect(t, url(s), "k").Held {
		t.Errorf("exit %d after %v: %s, %+v", code, time.Since(began), c.err.String(), inspect(t, url(s), "k"))
	}
}
