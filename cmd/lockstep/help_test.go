//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/lockstep-go/lockstep/proof/redistest"
)

func commands(t *testing.T) (all []string) {
	_, list, _ := strings.Cut(must(t, "", "help"), "Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	for _, line := range strings.Split(list, "\n") {
		all = append(all, strings.Fields(line)[0])
	}
	return all
}

var flagInHelp = regexp.MustCompile(`(?m)^  (-\S+)`)

// TestHelpManAndCompletionSayTheSame: every flag and every example of the help is in the manual
// page and the scripts.
func TestHelpManAndCompletionSayTheSame(t *testing.T) {
	man := strings.ReplaceAll(must(t, "", "help", "-man"), `\-`, "-")
	shells := map[string]string{}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		shells[shell] = must(t, "", "completion", shell)
	}
	all := commands(t)
	if len(all) < 12 {
		t.Fatalf("commands: %v", all)
	}
	for _, cmd := range all {
		help := must(t, "", "help", cmd)
		if must(t, "", cmd, "-h") != help {
			t.Errorf("%s -h is not its help", cmd)
		}
		if !strings.Contains(help, "Examples:\n  ") || !strings.Contains(help, "Exit codes:\n  ") {
			t.Errorf("%s has no example or no exit code: %s", cmd, help)
		}
		if !strings.Contains(man, "LOCKSTEP "+strings.ToUpper(cmd)) {
			t.Errorf("%s is not in the manual page", cmd)
		}
		for _, f := range flagInHelp.FindAllStringSubmatch(help, -1) {
			name := f[1]
			if !strings.Contains(man, ".BI "+name+" ") || !strings.Contains(shells["bash"], name) || !strings.Contains(shells["zsh"], name) ||
				!strings.Contains(shells["fish"], "-o "+name[1:]) {
				t.Errorf("%s of %s is missing", name, cmd)
			}
		}
		for _, line := range strings.Split(help, "\n") {
			if len(line) > 80 && !strings.HasPrefix(line, "  lockstep") && !strings.HasPrefix(line, "  token=") {
				t.Errorf("%s: %d columns: %s", cmd, len(line), line)
			}
		}
	}
	if groff, err := exec.LookPath("groff"); err == nil {
		c := exec.Command(groff, "-man", "-Tutf8", "-ww")
		c.Stdin = strings.NewReader(must(t, "", "help", "-man"))
		var warnings output
		c.Stderr = &warnings
		if err := c.Run(); err != nil || warnings.String() != "" {
			t.Errorf("groff: %v: %s", err, warnings.String())
		}
	}
	out, err := exec.Command("bash", "-c", shells["bash"]+`
COMP_WORDS=(lockstep -json run -ke); COMP_CWORD=3; _lockstep; echo "${COMPREPLY[@]}"
COMP_WORDS=(lockstep ru); COMP_CWORD=1; _lockstep; echo "${COMPREPLY[@]}"`).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "-keep-going") || !strings.Contains(string(out), "run\n") {
		t.Errorf("bash: %v: %s", err, out)
	}
}

var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// TestTheCommandsOfOperations runs every command of docs/operations.md, with a stuck lock.
func TestTheCommandsOfOperations(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	s := redistest.Start(t)
	ran := 0
	dir := t.TempDir()
	if err := os.Symlink(path(os.Executable()), filepath.Join(dir, "binary")); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/bash\nexec -a lockstep " + filepath.Join(dir, "binary") + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "lockstep"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
		for _, line := range strings.Split(strings.TrimSpace(block[1]), "\n") {
			if !strings.HasPrefix(line, "lockstep ") && !strings.HasPrefix(line, "LOCKSTEP_STORE=") {
				continue
			}
			s.Do("FLUSHALL")
			must(t, url(s), "acquire", "-ttl", "29s", "-holder", "api-7/4711", "deploy")
			line = strings.NewReplacer(
				"3f9a1c0b77e2d415", inspect(t, url(s), "deploy").Holds[0].Print, "redis://host1:6379", url(s), "redis://host2:6379", "redis://127.0.0.1:1",
				"redis://host3:6379", "redis://127.0.0.1:2", "./report", "true",
			).Replace(line)
			c := exec.Command("timeout", "-s", "INT", "4", "bash", "-c", line)
			c.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "LOCKSTEP_STORE="+url(s))
			out, err := c.CombinedOutput()
			code := c.ProcessState.ExitCode()
			if code == 64 || code == 126 || code == 127 || err != nil && c.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
				t.Errorf("%s\nexit %d: %s", line, code, out)
			}
			if strings.Contains(line, "-print ") && inspectEvicted(t, s) != strings.Contains(line, "-yes") {
				t.Errorf("%s: %+v", line, inspect(t, url(s), "deploy"))
			}
			ran++
		}
	}
	if ran < 10 {
		t.Errorf("only %d commands are there", ran)
	}
}

func inspectEvicted(t *testing.T, s *redistest.Server) bool {
	k := inspect(t, url(s), "deploy")
	return !k.Held || k.Holds[0].Evicted
}

func path(text string, err error) string {
	if err != nil {
		panic(err)
	}
	return text
}
