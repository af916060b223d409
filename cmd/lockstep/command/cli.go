package command

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// cli is one run of the command: its streams, and the flags that all commands have.
type cli struct {
	program  Program
	in       io.Reader
	out, err io.Writer

	urls       urls
	file       string
	strategy   string
	prefix     string
	maxTTL     time.Duration
	quorum     int
	permits    int
	timeout    time.Duration
	quarantine bool
	json       bool
	verbose    bool

	others  int      // keys that a list has passed over
	opened  []string // the URLs of the stores
	ageless bool     // the numbers of a store are no times: see Store
}

// common adds the flags that all commands have. They may stand before the command too.
func (c *cli) common(fs *flag.FlagSet) {
	fs.Var(&c.urls, "store", "`URL` of the store, without a password; given several times: the nodes of a quorum")
	fs.StringVar(&c.file, "store-file", c.file, "`file` with the URL of the store, or one URL a line for a quorum")
	fs.StringVar(&c.strategy, "strategy", c.strategy, "`name` of the strategy: "+strings.Join(usable(), ", ")+
		"; default: fenced, or redlock-fenced for a quorum, where the store can, else single or redlock")
	fs.StringVar(&c.prefix, "key-prefix", c.prefix, "`text` that the programs put before every key by WithPrefix of their store; default: LOCKSTEP_KEY_PREFIX")
	fs.Var(seconds{&c.maxTTL}, "max-ttl", "longest TTL (`duration`) of all programs that lock in the store; raised to that of this call")
	fs.IntVar(&c.quorum, "quorum", c.quorum, "`number` of nodes that must hold the lock; default: more than half")
	fs.IntVar(&c.permits, "permits", c.permits, "how many may hold a semaphore at once (`number`)")
	fs.Var(seconds{&c.timeout}, "timeout", "`duration` to wait for an answer of the store")
	fs.BoolVar(&c.quarantine, "quarantine", c.quarantine, "take no lock on a Redis server that was started less than -max-ttl ago; always so in a quorum")
	fs.BoolVar(&c.json, "json", c.json, "print JSON, one object a line")
	fs.BoolVar(&c.verbose, "v", c.verbose, "say more on standard error")
}

func (c *cli) main(args []string) int {
	c.maxTTL, c.timeout, c.prefix = defaultMaxTTL, defaultTimeout, os.Getenv(prefixVariable)
	fs := newFlags("lockstep")
	c.common(fs)
	if err := fs.Parse(args); err != nil {
		return c.report(c.explain(err, nil))
	}
	name := fs.Arg(0)
	if name == "" {
		return c.report(usage("no command is given: `lockstep help` lists them"))
	}
	cmd := c.find(name)
	if cmd == nil {
		return c.report(usage("there is no command %q: `lockstep help` lists them", name))
	}
	args = fs.Args()[1:]
	fs = newFlags(name)
	c.common(fs)
	run := cmd.setup(c, fs)
	rest, err := cmd.parse(fs, args)
	if err != nil {
		return c.report(c.explain(err, cmd))
	}
	return c.report(run(context.Background(), rest))
}

func newFlags(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return fs
}

// explain prints the help if it was asked for, and makes any other error of the flags one that
// shows where the help is.
func (c *cli) explain(err error, cmd *command) error {
	if errors.Is(err, flag.ErrHelp) {
		c.help(cmd)
		return nil
	}
	name := "lockstep help"
	if cmd != nil {
		name += " " + cmd.name
	}
	return usage("%w; see `%s`", err, name)
}

// parse parses flags before and behind the names. What stands behind "--" is the last of the rest, as it
// is: a command to run, or names.
func (cmd *command) parse(fs *flag.FlagSet, args []string) (rest []string, err error) {
	args, behind, dashes := cut(args)
	for {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		if fs.NArg() == 0 {
			break
		}
		rest, args = append(rest, fs.Arg(0)), fs.Args()[1:]
	}
	if !cmd.dashes { // names that begin with - may stand behind it
		rest, behind = append(rest, behind...), nil
	}
	if n := len(rest); n < cmd.atLeast || n > cmd.atMost {
		return nil, fmt.Errorf("%d names are given: the call is `lockstep %s %s`", n, cmd.name, cmd.args)
	}
	if cmd.dashes && !dashes {
		return nil, fmt.Errorf("the call is `lockstep %s %s`", cmd.name, cmd.args)
	}
	for _, name := range rest {
		if name == "" {
			return nil, errors.New("the name is empty: is a variable of the script not set?")
		}
	}
	return append(rest, behind...), nil
}

func cut(args []string) (before, behind []string, found bool) {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i], args[i+1:], true
	}
	return args, nil, false
}

// report prints err and returns the exit code.
func (c *cli) report(err error) int {
	if err == nil {
		return 0
	}
	if text := err.Error(); text != "" {
		c.say("%s", strings.TrimPrefix(text, "lockstep: "))
	}
	return exitCode(err)
}

// say prints a line on standard error.
func (c *cli) say(format string, args ...any) {
	put(c.err, "lockstep: %s\n", c.reworded(fmt.Sprintf(format, args...)))
}

// worded is an error for a log, or nil.
func (c *cli) worded(err error) any {
	if err == nil {
		return nil
	}
	return c.reworded(err.Error())
}

// reworded makes a text of the library one for users of the command.
func (c *cli) reworded(text string) string { return c.program.Words().Replace(text) }

// put prints. An error of a terminal or a pipe stops nothing.
func put(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// drop closes what was only read, or has been closed before: a failed Close loses nothing.
func drop(c io.Closer) { c.Close() }

// detail is say under -v.
func (c *cli) detail(format string, args ...any) {
	if c.verbose {
		c.say(format, args...)
	}
}

// print prints a line of JSON.
func (c *cli) print(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// urls are the values of -store.
type urls []string

func (u *urls) String() string { return "" }

func (u *urls) Set(text string) error {
	*u = append(*u, text)
	return nil
}

// seconds is a duration as Go writes it, or a number of seconds.
type seconds struct{ d *time.Duration }

func (s seconds) String() string {
	if s.d == nil || *s.d <= 0 { // less: not given
		return ""
	}
	return s.d.String()
}

func (s seconds) Set(text string) error {
	d, err := time.ParseDuration(text)
	if n, failed := strconv.ParseFloat(text, 64); failed == nil {
		d, err = time.Duration(n*float64(time.Second)), nil
	}
	if err != nil || d < 0 {
		return errors.New("write it as 30s, 1m30s or 30")
	}
	*s.d = d
	return nil
}

const (
	defaultMaxTTL  = backends.DefaultMaxTTL
	defaultTimeout = 5 * time.Second
)

// fields are the words of a list with commas.
func fields(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
