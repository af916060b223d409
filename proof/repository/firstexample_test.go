package repository

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/proof/redistest"
)

// TestTheFirstExampleOfREADMEWorksOnANewServer runs it as printed, except for the address.
func TestTheFirstExampleOfREADMEWorksOnANewServer(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?ms)^```go\n(package main\n.*?)^```$").FindStringSubmatch(string(text))
	if block == nil {
		t.Fatal("README has no whole program")
	}
	dir := consumer(t)
	source := strings.ReplaceAll(block[1], `"localhost:6379"`, "os.Args[1]")
	source = strings.Replace(source, "import (\n", "import (\n\t\"os\"\n", 1)
	write(t, filepath.Join(dir, "main.go"), source)
	build(t, dir)
	t.Run("without a server", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "consumer"), "127.0.0.1:1")
		out, err := cmd.CombinedOutput()
		line := regexp.MustCompile(`^\S+ \S+ the work failed, or the store did: lockstep: lock "invoice/42": .*127\.0\.0\.1:1: .*; nothing was sent\n$`)
		if err != nil || !line.Match(out) {
			t.Errorf("%v; want one line with the error of the program:\n%s", err, out)
		}
	})
	server := redistest.Start(t) // only now, so that it is new
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "consumer"), server.Addr())
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "charging invoice 42\n" {
		t.Errorf("%v\n%s", err, out)
	}
}
