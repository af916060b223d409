package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/bench/internal/lab"
)

const jobEnv = "LOCKSTEP_BENCH_JOB"

// A job is the work of a separate process: one that can be frozen or killed, or one whose memory
// and CPU time are measured alone.
type job struct {
	Kind      string // of jobs
	Contender string
	Addr      string
	Key       string
	TTL       time.Duration
	Count     int           // of locks, or of waiters
	Keys      int           // of these locks or waiters
	Settle    time.Duration // the pause after the last request, before the measurement
	Window    time.Duration // of the measurement
}

var jobs = map[string]func(job, *bufio.Reader) error{
	"stand in line": standInLine, "hold many": holdMany, "wait in a crowd": waitInACrowd, "lead": lead,
}

// beChild returns at once, unless this process was started for a job.
func beChild() {
	text := os.Getenv(jobEnv)
	if text == "" {
		return
	}
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		err = jobs[j.Kind](j, bufio.NewReader(os.Stdin))
	}
	if err != nil {
		say("error", strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
	os.Exit(0)
}

// say sends the parent a word and a value.
func say(word string, what any) {
	text, err := json.Marshal(what)
	if err != nil {
		panic(err) // every value here can be encoded
	}
	fmt.Printf("%s %s\n", word, text)
}

// A child is a process that does a job.
type child struct {
	*lab.Process
	in    io.Writer
	lines chan string
}

// child starts a process for a job.
func (t *turn) child(j job) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), jobEnv+"="+string(text))
	return t.spawn(cmd)
}

// spawn starts a program that reads and writes lines, and that ends no later than the turn.
func (t *turn) spawn(cmd *exec.Cmd) (*child, error) {
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = theirs
	process, err := lab.StartProcess(cmd)
	_ = theirs.Close()
	if err != nil {
		_ = out.Close()
		return nil, err
	}
	c := &child{process, in, make(chan string, 100)}
	go func() {
		defer close(c.lines)
		defer func() { _ = out.Close() }() // it was only read
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.lines <- lines.Text()
		}
	}()
	if !t.after(c.Kill) {
		return nil, errOver
	}
	return c, nil
}

func (c *child) tell(word string) error {
	_, err := fmt.Fprintln(c.in, word)
	return err
}

// hear waits for a word and reads its value. It ends at the time limit of the turn.
func (c *child) hear(word string, what any) error {
	line, ok := <-c.lines
	if !ok {
		return fmt.Errorf("a process ended instead of saying %q", word)
	}
	said, text, _ := strings.Cut(line, " ")
	switch said {
	case word:
		return json.Unmarshal([]byte(text), what)
	case "error":
		var reason string
		_ = json.Unmarshal([]byte(text), &reason) // beChild has marshalled it
		return fmt.Errorf("in a process of its own: %s", reason)
	default:
		return fmt.Errorf("a process said %q instead of %q", said, word)
	}
}
