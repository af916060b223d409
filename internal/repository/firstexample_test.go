package repository

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/redistest"
)

// mainAround is the rest of the program that the first example of README is a part of.
const mainAround = `
var (
	ctx     = context.Background()
	invoice int
)

func charge(context.Context, int) error { fmt.Println("charged"); return nil }

func main() {
	if err := example(); err != nil {
		log.Fatal(err)
	}
}

func example() error {
`

// TestTheFirstExampleOfREADMEWorksOnANewServer runs it as printed, but for the address.
func TestTheFirstExampleOfREADMEWorksOnANewServer(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindStringSubmatch(string(text))
	if block == nil || !strings.Contains(block[1], "charge(ctx, invoice)") {
		t.Fatal("README has another first example: mend this test")
	}
	dir := consumer(t)
	imports := ""
	for _, name := range []string{"context", "errors", "fmt", "log", "os", "time", "locker", "goredis", "single", "redis"} {
		imports += "import " + name + ` "` + packages[name] + "\"\n"
	}
	source := strings.ReplaceAll(block[1], `"localhost:6379"`, "os.Args[1]")
	write(t, filepath.Join(dir, "main.go"), "package main\n\n"+imports+mainAround+source+"\n\treturn err\n}\n")
	build(t, dir)
	server := redistest.Start(t) // now, so that it is new
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "consumer"), server.Addr())
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "charged\n" {
		t.Errorf("%v\n%s", err, out)
	}
}
