package command

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"os/user"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"golang.org/x/term"
)

// grant is what acquire prints with -json. The token is a secret.
type grant struct {
	Key     string    `json:"key"`
	Token   string    `json:"token"`
	Fence   uint64    `json:"fence,omitempty"`
	Expires time.Time `json:"expires"`
}

const tokenText = `The token is a secret: whoever has it can release the lock. It is printed on standard output, and read from a file or
standard input, never from an argument.`

func acquireCommand() *command {
	return &command{
		name: "acquire", args: "[FLAGS] NAME", atLeast: 1, atMost: 1, summary: "take a lock for a script, and print its token",
		text: "Nothing renews the lock: it is free again after -ttl, unless lockstep extend prolongs it. Where one command does the work, lockstep run is safer.\n\n" + tokenText,
		example: []example{
			{`token=$(lockstep acquire -w 1m -ttl 20s deploy) || exit`, ""},
			{`printf %s "$token" | lockstep extend -ttl 20s deploy`, ""},
			{`printf %s "$token" | lockstep release -token-file - deploy`, ""},
		},
		exits: []exit{{"0", "the lock is held"}, asking[1], asking[2], {"75", "it is held by someone else, with -n or after -w"}, asking[3], {"128+n", "signal n ended the wait"}},
		setup: func(c *cli, fs *flag.FlagSet) func(context.Context, []string) error {
			r := &running{cli: c, ttl: defaultTTL, wait: -1}
			file := fs.String("token-file", "-", "`file` to write the token to; -: standard output")
			fs.BoolVar(&r.noWait, "n", false, "do not wait if the lock is held")
			fs.Var(seconds{&r.wait}, "w", "wait for `duration` at most")
			fs.Var(seconds{&r.ttl}, "ttl", "how long the lock lasts (`duration`)")
			fs.StringVar(&r.holder, "holder", "", "`label` that others see; default: host/process/acquire")
			return func(ctx context.Context, args []string) error {
				r.name = args[0]
				return r.take(ctx, *file)
			}
		},
	}
}

func (r *running) take(ctx context.Context, file string) (err error) {
	survivePipe()
	if r.noWait && r.wait >= 0 {
		return usage("-n does not wait and -w does: give one of them")
	}
	stores, err := r.open(ctx, r.ttl)
	if err != nil {
		return err
	}
	defer shut(stores)
	l, _, err := r.locker(ctx, stores)
	if err != nil {
		return err
	}
	if err := r.waitsForItself(ctx, stores); err != nil {
		return err
	}
	r.holder = cmp.Or(r.holder, label("acquire"))
	locks := locker.New(l, locker.WithHolder(r.holder), locker.WithoutRenewal())
	defer func() { drain(locks, patience(err, 2*time.Second)) }()
	signals := make(chan os.Signal, 1)
	notify(signals, endings)
	defer signal.Stop(signals)
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case s := <-signals:
			stop(&exitError{code: endedBy(s)})
		case <-waiting.Done():
		}
	}()
	held, err := r.lock(waiting, locks)
	var interrupted *exitError
	if errors.As(context.Cause(waiting), &interrupted) {
		if err == nil {
			_ = unlock(held)
		}
		err = interrupted
	}
	if err != nil {
		signal.Stop(signals) // another one ends this process at once
		r.leave(stores, err)
		return err
	}
	lease := held.Lease()
	if err := r.deliver(file, lease); err != nil { // nobody could release it
		_ = unlock(held)
		return &exitError{exitUsage, fmt.Errorf("the token can't be written, and the lock was released: %w", err)}
	}
	return nil
}

func (r *running) deliver(file string, lease contract.Lease) error {
	write := func(w io.Writer) error {
		if r.json {
			return r.print(w, grant{lease.Key, oneWord(lease.Token), lease.Fence, lease.Expires.Round(0)})
		}
		_, err := fmt.Fprintln(w, oneWord(lease.Token))
		return err
	}
	if file == "-" {
		return write(r.out)
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o600), write(f), f.Close()) // the file may be an old one
}

// oneWord is a token without a space, for scripts that forget the quotes: the label, "@", and the secret. A
// label has no "@".
func oneWord(token string) string {
	label := backends.LabelOf(token)
	if label == "" {
		return token
	}
	return url.PathEscape(label) + "@" + token[len(label)+1:]
}

// fromOneWord is the token. One that has a space is as it was.
func fromOneWord(text string) string {
	label, secret, found := strings.Cut(text, "@")
	plain, err := url.PathUnescape(label)
	if !found || err != nil {
		return text
	}
	return plain + " " + secret
}

// token reads a token as acquire wrote it, without -json.
func (c *cli) token(file string) (string, error) {
	r := c.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", usage("the token: %w", err)
		}
		defer drop(f)
		r = f
	}
	text, err := io.ReadAll(io.LimitReader(r, 1024))
	if err != nil {
		return "", usage("the token: %w", err)
	}
	token := fromOneWord(strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"))
	if !backends.IsToken(token) {
		return "", usage("what was read is no token: give what lockstep acquire has printed, without -json")
	}
	return token, nil
}

// exits of extend and release.
var holding = with([]exit{{"74", "the lock is lost: its time is over, or somebody has released it"}}, asking...)

func extendCommand() *command {
	return &command{
		name: "extend", args: "[FLAGS] NAME", atLeast: 1, atMost: 1, summary: "prolong a lock of lockstep acquire",
		text:    "The lock lasts for -ttl from now, if it did not last longer. One that is over is not brought back.\n\n" + tokenText,
		example: []example{{`lockstep extend -ttl 30s -token-file deploy.token deploy`, ""}},
		exits:   holding,
		setup: func(c *cli, fs *flag.FlagSet) func(context.Context, []string) error {
			ttl := defaultTTL
			file := fs.String("token-file", "-", "`file` with the token; -: standard input")
			fs.Var(seconds{&ttl}, "ttl", "how long the lock lasts from now (`duration`)")
			return func(ctx context.Context, args []string) error {
				return c.holding(ctx, args[0], *file, ttl, func(ctx context.Context, l locker.Locker, lease contract.Lease) error {
					extended, err := l.Extend(ctx, lease, ttl)
					if err == nil && c.json {
						return c.print(c.out, struct {
							Key     string    `json:"key"`
							Expires time.Time `json:"expires"`
						}{extended.Key, extended.Expires.Round(0)})
					}
					return err
				})
			}
		},
	}
}

// holding calls do for the lease that a token names.
func (c *cli) holding(ctx context.Context, name, file string, ttl time.Duration, do func(context.Context, locker.Locker, contract.Lease) error) error {
	token, err := c.token(file)
	if err != nil {
		return err
	}
	stores, err := c.open(ctx, ttl)
	if err != nil {
		return err
	}
	defer shut(stores)
	l, _, err := c.locker(ctx, stores)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return do(ctx, l, contract.Lease{Key: name, Token: token})
}

// forced is a release by force.
type forced struct {
	*cli
	prints  prints
	now     bool
	foreign bool
	reason  string
	yes     bool
}

// prints are the values of -print.
type prints []string

func (p *prints) String() string { return "" }

func (p *prints) Set(text string) error {
	*p = append(*p, text)
	return nil
}

func releaseCommand() *command {
	return &command{
		name: "release", args: "[FLAGS] NAME", atLeast: 1, atMost: 1, summary: "release a lock by its token, or by force",
		text: `With -token-file, the lock of lockstep acquire is released.

With -print, a hold of somebody else is ended by force. The print names what you have seen: if the hold is over and
somebody else has the lock, nothing happens. The holder finds out at its next renewal and may work until then. So the
lock stays closed until the lease would have ended by itself; it is free later than you may expect, and nobody works
beside the holder. With -now it is free at once: only if the holder has stopped for sure.

With neither, it shows who holds the lock and the command that frees it. Every forced release writes a line to
standard error: who, what, why.`,
		example: []example{
			{"lockstep release deploy", "releases nothing, and shows the print"},
			{"lockstep release deploy -print 3f9a1c0b77e2d415 -reason 'host is gone' -yes", ""},
			{"lockstep release -token-file deploy.token deploy", ""},
		},
		exits: []exit{
			{"0", "it was released, or it is free"}, asking[1], asking[2], asking[3],
			{"74", "with -token-file: the lock is lost, its time is over, or somebody has released it"},
			{"75", "nothing was released: it is held, or no hold has the print"},
		},
		setup: func(c *cli, fs *flag.FlagSet) func(context.Context, []string) error {
			f := &forced{cli: c}
			file := fs.String("token-file", "", "`file` with the token of lockstep acquire; -: standard input")
			fs.Var(&f.prints, "print", "end the hold that `print` names; may be given several times")
			fs.BoolVar(&f.now, "now", false, "with -print: open the lock at once")
			fs.BoolVar(&f.foreign, "foreign", false, "with -print: also if the value may be no lock")
			fs.StringVar(&f.reason, "reason", "", "with -print: `text` for the line on standard error")
			fs.BoolVar(&f.yes, "yes", false, "with -print: do not ask")
			return func(ctx context.Context, args []string) error {
				switch {
				case len(f.prints) > 0 && *file != "":
					return usage("give either -print or -token-file")
				case len(f.prints) > 0:
					return f.release(ctx, args[0])
				case f.now || f.foreign || f.yes || f.reason != "":
					return usage("-now, -foreign, -reason and -yes need -print: `lockstep release %s` shows it", args[0])
				case *file == "":
					return f.show(ctx, args[0])
				}
				return c.holding(ctx, args[0], *file, 0, func(ctx context.Context, l locker.Locker, lease contract.Lease) error {
					return l.Release(ctx, lease)
				})
			}
		},
	}
}

func (f *forced) show(ctx context.Context, name string) error {
	stores, err := f.open(ctx, 0)
	if err != nil {
		return err
	}
	defer shut(stores)
	states, errs := f.inspect(ctx, stores, name)
	if err := f.enough(stores, errs); err != nil {
		return err
	}
	if err := f.showStates(name, stores, states, errs); err != nil {
		return err
	}
	for _, s := range states {
		if isHeld(s) {
			return &exitError{code: exitHeld}
		}
	}
	return nil
}

func (f *forced) release(ctx context.Context, name string) error {
	for _, print := range f.prints {
		if !isPrint(print) {
			return usage("%q is no print: that has 16 digits and letters from a to f, as `lockstep inspect %s` shows them", print, shellWord(name))
		}
	}
	stores, err := f.open(ctx, 0)
	if err != nil {
		return err
	}
	defer shut(stores)
	if !f.yes {
		if err := f.ask(ctx, stores, name); err != nil {
			return err
		}
	}
	by := operator()
	e := backends.Eviction{By: by, Now: f.now, Foreign: f.foreign}
	done, errs := 0, make([]error, len(stores))
	for i, s := range stores {
		evictor, ok := s.Backend.(backends.Evictor)
		if !ok {
			errs[i] = usage("%s can't end a hold by force", s.Name)
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, f.timeout)
		for _, print := range f.prints {
			ok, err := evictor.Evict(ctx, name, print, e)
			if ok {
				done++
			}
			errs[i] = errors.Join(errs[i], f.told(err))
		}
		cancel()
	}
	what := "forced release"
	if done == 0 {
		what = "forced release failed"
	}
	slog.New(slog.NewTextHandler(f.err, nil)).Info(what,
		"key", name, "prints", strings.Join(f.prints, " "), "by", by, "reason", f.reason, "now", f.now, "released", done, "error", f.worded(errors.Join(errs...)))
	if err := f.enough(stores, errs); err != nil {
		return err
	}
	switch {
	case done == 0:
		return &exitError{exitHeld, fmt.Errorf("nothing was released: no hold of %q has this print. It is over, or the print, the name or -key-prefix is another one; `lockstep inspect %s` shows what is there now", name, shellWord(name))}
	case f.now:
		f.say("%s is open: a holder that still works learns of it at its next renewal only", name)
	default:
		f.say("%s is closed until the lease of its holder would have ended", name)
	}
	return nil
}

func isPrint(text string) bool {
	return len(text) == 16 && strings.Trim(text, "0123456789abcdef") == ""
}

// ask shows what would be released, and asks for a yes.
func (f *forced) ask(ctx context.Context, stores []*Store, name string) error {
	in, ok := f.in.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return usage("standard input is no terminal: give -yes to release without a question")
	}
	states, errs := f.inspect(ctx, stores, name)
	for i, s := range states {
		if errs[i] == nil {
			f.describe(f.err, name, nodeName(stores, i), s)
		}
	}
	put(f.err, "Release %s by force? Type yes: ", strings.Join(f.prints, " "))
	line, _ := bufio.NewReader(f.in).ReadString('\n')
	if strings.TrimSpace(line) != "yes" {
		return &exitError{exitHeld, errors.New("nothing was released")}
	}
	return nil
}

// operator is a label for who releases by force.
func operator() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	if text := host + "/" + name; backends.ValidHolder(text) {
		return text
	}
	return ""
}

func installCommand() *command {
	return &command{
		name: "install", summary: "create what the store needs, such as tables",
		text: `PostgreSQL needs the schema lockstep, MySQL and SQLite a table, and NATS a stream. Redis and etcd need nothing. It
may run again, also while locks are held.

With -print it prints the SQL and creates nothing, for a migration. With -grant it prints the SQL that gives a role the
rights that programs need to lock, and no others.`,
		example: []example{
			{"lockstep install", ""},
			{"lockstep install -print > 0001_locks.sql", ""},
			{"lockstep install -grant app | psql -d DATABASE", "after lockstep install, as the owner of the schema"},
		},
		exits: asking,
		setup: func(c *cli, fs *flag.FlagSet) func(context.Context, []string) error {
			text := fs.Bool("print", false, "print the SQL that creates what the store needs")
			role := fs.String("grant", "", "print the SQL that lets `role` lock")
			return func(ctx context.Context, _ []string) error {
				stores, err := c.open(ctx, 0)
				if err != nil {
					return err
				}
				defer shut(stores)
				if *text || *role != "" {
					return c.sql(stores, *text, *role)
				}
				for _, s := range stores {
					if s.Install == nil {
						c.say("%s needs nothing", s.Name)
						continue
					}
					ctx, cancel := context.WithTimeout(ctx, time.Minute)
					err := s.Install(ctx)
					cancel()
					if err != nil {
						return err
					}
					c.say("%s is ready", s.Name)
				}
				return nil
			}
		},
	}
}

// sql prints what an owner runs by hand.
func (c *cli) sql(stores []*Store, schema bool, role string) error {
	for _, s := range stores {
		switch {
		case schema && s.Schema == "":
			return usage("%s needs no SQL: `lockstep install` creates what it needs", s.Name)
		case role != "" && s.Grants == nil:
			return usage("the rights of a user of %s are not known here: see docs/choosing-a-store.md", s.Name)
		}
		if schema {
			put(c.out, "%s\n", strings.TrimSpace(s.Schema))
		}
		if role != "" {
			put(c.out, "%s\n", strings.TrimSpace(s.Grants(role)))
		}
	}
	return nil
}
