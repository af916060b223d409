package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/lockstep-go/lockstep/proof/redistest"
	"golang.org/x/sys/unix"
)

// terminal is a pseudo terminal with a shell that controls jobs.
type terminal struct {
	t      *testing.T
	master *os.File
	out    output
	shell  *exec.Cmd
}

func startTerminal(t *testing.T, store string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		redistest.Missing(t, "no pseudo terminals: %v", err)
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: 80}); err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &terminal{t: t, master: master, shell: exec.Command("bash", "--norc", "--noprofile", "-i")}
	p.shell.Env = append(os.Environ(), "LOCKSTEP_STORE="+store, "EXE="+exe, "PS1=$ ", "TERM=xterm")
	p.shell.Stdin, p.shell.Stdout, p.shell.Stderr = slave, slave, slave
	p.shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.shell.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for b := make([]byte, 4096); ; {
			n, err := master.Read(b)
			if err != nil {
				return
			}
			_, _ = p.out.Write(b[:n])
		}
	}()
	t.Cleanup(func() {
		_ = p.shell.Process.Kill()
		_ = p.shell.Wait()
		master.Close()
	})
	p.enter(`lockstep() { (exec -a lockstep "$EXE" "$@"); }; stty -echo; echo rea''dy`)
	p.expect("ready")
	return p
}

func (p *terminal) enter(line string) { _, _ = p.master.WriteString(line + "\n") }

func (p *terminal) expect(text string) {
	p.t.Helper()
	await(p.t, fmt.Sprintf("%q", text), func() bool { return strings.Contains(p.out.String(), text) })
}

func TestAJobOfATerminal(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	t.Run("the command reads the terminal, and Ctrl-C goes to it", func(t *testing.T) {
		p := startTerminal(t, url(s))
		p.enter(`lockstep run a -- sh -c 'trap "echo got INT; exit 9" INT; echo as''king; read x; echo "answer=$x"; while :; do sleep 0.02; done'; echo code=$?`)
		p.expect("asking")
		p.enter("blue")
		p.expect("answer=blue")
		_, _ = p.master.WriteString("\x03")
		p.expect("got INT")
		p.expect("code=9")
		p.enter("echo shell has it again | tr a-z A-Z")
		p.expect("SHELL HAS IT AGAIN")
	})
	t.Run("a stopped job goes on", func(t *testing.T) {
		p := startTerminal(t, url(s))
		p.enter(`lockstep run -ttl 29s b -- sh -c 'echo as''king; read x; echo "answer=$x"'`)
		p.expect("asking")
		_, _ = p.master.WriteString("\x1a")
		p.expect("Stopped")
		p.enter("echo sto''pped; fg")
		p.expect("stopped")
		p.enter("green")
		p.expect("answer=green")
	})
	t.Run("a job that stays stopped is killed before the lease ends", func(t *testing.T) {
		p := startTerminal(t, url(s))
		holder := fmt.Sprintf("stopped-%d", rand.Uint64())
		p.enter(`lockstep run -ttl 6s -holder ` + holder + ` c -- sh -c 'echo as''king; read x'`)
		p.expect("asking")
		_, _ = p.master.WriteString("\x1a")
		p.expect("Stopped")
		await(t, "the lock is free", func() bool { return !inspect(t, url(s), "c").Held })
		await(t, "nothing lives", func() bool { return len(living(t, "LOCKSTEP_HOLDER="+holder)) == 0 })
		p.enter("fg; echo code=$?")
		p.expect("code=74")
	})
	t.Run("top draws in place, in 80 columns", func(t *testing.T) {
		p := startTerminal(t, url(s))
		must(t, url(s), "acquire", "-ttl", "5m", "-holder", "a-holder-with-a-long-name", "job/"+strings.Repeat("long", 30))
		p.enter("lockstep top -every 50ms -prefix job/; echo code=$?")
		p.expect("job/long")
		await(t, "it draws again", func() bool { return strings.Count(p.out.String(), "\x1b[H") > 2 })
		_, _ = p.master.WriteString("q")
		p.expect("code=0")
		text := p.out.String()
		if strings.Contains(text, "\x1b[2J") || !strings.Contains(text, "\x1b[?1049l") {
			t.Errorf("it clears the screen, or does not give it back: %q", text)
		}
		_, screen, _ := strings.Cut(text, "\x1b[H")
		screen, _, _ = strings.Cut(screen, "\x1b[H")
		for _, line := range strings.Split(screen, "\r\n") {
			if n := len([]rune(strings.NewReplacer("\x1b[K", "", "\x1b[J", "").Replace(line))); n > 80 {
				t.Errorf("%d columns: %q", n, line)
			}
		}
	})
}
