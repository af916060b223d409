package command

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/lockstep-go/lockstep/backends"
)

func topCommand() *command {
	return &command{
		name: "top", args: "[FLAGS]", summary: "show the locks that are held, live",
		text: `The locks with most waiters come first, then those that are held longest. ≤ and ≥ say how long a lock
has been held, as far as the store and this program know. q, or Ctrl-C, ends it; if standard output is no terminal,
it prints once.`,
		example: []example{{"lockstep top -prefix invoice/", ""}, {"lockstep top -every 250ms -prefix invoice/", ""}},
		exits:   asking,
		setup: func(c *cli, fs *flag.FlagSet) func(context.Context, []string) error {
			prefix := fs.String("prefix", "", "only locks that begin with `text`")
			every := time.Second
			fs.Var(seconds{&every}, "every", "draw again after `duration`")
			return func(ctx context.Context, _ []string) error {
				stores, err := c.open(ctx, 0)
				if err != nil {
					return err
				}
				defer shut(stores)
				t := &top{cli: c, stores: stores, prefix: *prefix, since: map[string]time.Time{}}
				out, ok := c.out.(*os.File)
				if !ok || !term.IsTerminal(int(out.Fd())) {
					text, err := t.screen(ctx, 0, 0)
					if err == nil {
						_, err = c.out.Write(text)
					}
					return err
				}
				return t.live(ctx, int(out.Fd()), max(every, 50*time.Millisecond))
			}
		},
	}
}

// top is a screen of locks.
type top struct {
	*cli
	stores []*Store
	prefix string
	since  map[string]time.Time // since when a print has been seen
}

// The control sequences of terminals (ECMA-48) that it uses. A screen is drawn over the last one,
// line by line, and never cleared: so it does not flicker.
const (
	altScreen  = "\x1b[?1049h\x1b[?25l"
	mainScreen = "\x1b[?25h\x1b[?1049l"
	home       = "\x1b[H"
	clearRight = "\x1b[K"
	clearBelow = "\x1b[J"
)

// live draws until ctx ends, q is typed, or a signal comes.
func (t *top) live(ctx context.Context, fd int, every time.Duration) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, terminate)
	defer stop()
	if in, ok := t.in.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		old, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return err
		}
		defer func() { _ = term.Restore(int(in.Fd()), old) }()
		go func() {
			defer stop()
			for b := make([]byte, 1); ; {
				if n, err := in.Read(b); err != nil || n > 0 && strings.ContainsAny(string(b), "qQ\x03\x04\x1b") {
					return
				}
			}
		}()
	}
	put(t.out, "%s", altScreen)
	defer put(t.out, "%s", mainScreen)
	for {
		width, height, err := term.GetSize(fd)
		if err != nil || width < 20 || height < 4 {
			width, height = 80, 24
		}
		text, err := t.screen(ctx, width, height)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && exitCode(err) != exitUnavailable {
			return err
		}
		if err != nil {
			text = []byte(wrap("lockstep top: "+t.reworded(err.Error()), "", width) + "\n") // the store may come back
		}
		text = bytes.ReplaceAll(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"), []byte(clearRight+"\r\n"))
		if _, err := t.out.Write(slices.Concat([]byte(home), text, []byte(clearRight+clearBelow))); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// screen is what is held now, in at most so many lines; 0: any size.
func (t *top) screen(ctx context.Context, width, height int) ([]byte, error) {
	began := time.Now()
	t.others = 0
	all, err := t.list(ctx, t.stores, t.prefix, everything)
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	seen := map[string]bool{}
	waiting, known := 0, true
	for _, f := range all {
		known = known && f.Waiting != backends.NotKnown
		waiting += max(f.Waiting, 0)
		for _, h := range f.Holds {
			seen[h.Print] = true
			if _, known := t.since[h.Print]; !known {
				t.since[h.Print] = began
			}
		}
	}
	for print := range t.since {
		if !seen[print] {
			delete(t.since, print)
		}
	}
	t.sort(all)
	var text bytes.Buffer
	waits := strconv.Itoa(waiting)
	switch {
	case !known && waiting > 0:
		waits = "≥" + waits
	case !known:
		waits = "not known how many"
	}
	head := fmt.Sprintf("%s  %s, %s waiting, looked in %s", began.Format("15:04:05"), count(len(all), "lock"), waits, shortly(took))
	if t.others > 0 {
		head += ", passed over " + count(t.others, "other key")
	}
	if width > 0 {
		head = clip(head, width)
	}
	put(&text, "%s\n", head)
	if rows := height - 3; height > 0 && len(all) > rows {
		all = all[:rows]
	}
	t.table(&text, all, width, "no lock is held", t.since)
	return text.Bytes(), nil
}

// sort has the locks with most waiters first, then those that are held longest.
func (t *top) sort(all []found) {
	slices.SortStableFunc(all, func(a, b found) int {
		return cmp.Or(b.Waiting-a.Waiting, t.start(a).Compare(t.start(b)))
	})
}

// count is a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// start is when a lock was taken, as far as it is known.
func (t *top) start(f found) time.Time {
	if age, ok := t.heldAtMost(f.State); ok {
		return time.Now().Add(-age)
	}
	if len(f.Holds) > 0 {
		return t.since[f.Holds[0].Print]
	}
	return time.Now()
}
