package command

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

func watchCommand() *command {
	return &command{
		name: "watch", args: "[FLAGS] NAME", atLeast: 0, atMost: 1, summary: "print a line whenever a lock changes hands, until interrupted",
		text: `A lock is looked at when a release wakes waiters, and every -every besides. Changes in between are not seen. A
renewal is no change. While the store does not answer, it is asked again.`,
		example: []example{{"lockstep watch deploy", ""}, {"lockstep watch -prefix invoice/ -json", "all locks of a prefix, as lines of JSON"}},
		exits:   with(asking[1:], exit{"0", "it was interrupted by INT or TERM"}),
		setup: func(c *cli, fs *flag.FlagSet) func(context.Context, []string) error {
			prefix := fs.String("prefix", "", "watch all locks that begin with `text`, in place of one NAME")
			every := time.Second
			fs.Var(seconds{&every}, "every", "look at least so often (`duration`)")
			return func(ctx context.Context, args []string) error {
				if len(args) == 0 && *prefix == "" || len(args) > 0 && *prefix != "" {
					return usage("give either a NAME or -prefix")
				}
				ctx, stop := signal.NotifyContext(ctx, os.Interrupt, terminate)
				defer stop()
				stores, err := c.open(ctx, 0)
				if err != nil {
					return err
				}
				defer shut(stores)
				return c.watch(ctx, stores, strings.Join(args, ""), *prefix, max(every, 50*time.Millisecond))
			}
		},
	}
}

// watch prints changes until ctx ends.
func (c *cli) watch(ctx context.Context, stores []*Store, name, prefix string, every time.Duration) error {
	woken := make(chan struct{}, 1)
	if name != "" {
		for _, s := range stores {
			_ = s.Backend.Watch(ctx, name, func() { // without wake-ups it polls
				select {
				case woken <- struct{}{}:
				default:
				}
			})
		}
	}
	last, silent := make([]map[string]string, len(stores)), make([]bool, len(stores))
	for {
		for i, s := range stores {
			now, err := c.look(ctx, s, name, prefix)
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil && len(stores) == 1 && exitCode(err) != exitUnavailable:
				return err
			case err != nil && !silent[i]:
				c.say("%s: %v; it is asked again", s.Name, err)
			}
			if silent[i] = err != nil; silent[i] {
				continue
			}
			if last[i], err = c.tellChanges(last[i], now, nodeName(stores, i)); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-woken:
		case <-time.After(every):
		}
	}
}

func (c *cli) look(ctx context.Context, s *Store, name, prefix string) (all []backends.KeyState, err error) {
	if name == "" {
		return c.listOne(ctx, s, prefix, everything)
	}
	state, err := c.inspectOne(ctx, s, name)
	return []backends.KeyState{{Key: name, State: state}}, err
}

// tellChanges prints what is not as it was, and returns what to compare with the next time.
func (c *cli) tellChanges(last map[string]string, all []backends.KeyState, node string) (now map[string]string, err error) {
	now = map[string]string{}
	for _, k := range all {
		now[k.Key] = change(k.State)
		if now[k.Key] != last[k.Key] {
			if err := c.tellChange(found{k, node}); err != nil {
				return nil, err
			}
		}
	}
	for key := range last {
		if _, there := now[key]; !there {
			if err := c.tellChange(found{backends.KeyState{Key: key}, node}); err != nil {
				return nil, err
			}
		}
	}
	return now, nil
}

// change is what makes two States differ for watch.
func change(s backends.State) string {
	var text strings.Builder
	prints := make([]string, 0, len(s.Holds))
	for _, h := range s.Holds {
		prints = append(prints, fmt.Sprintf("%s %v", h.Print, h.Evicted))
	}
	slices.Sort(prints) // a renewal makes a hold the last one to end
	put(&text, "%s ", strings.Join(prints, ","))
	put(&text, "%d %d %d %v", s.Holding, s.Waiting, s.Reserved, s.Foreign)
	return text.String()
}

func (c *cli) tellChange(f found) error {
	at := time.Now()
	if c.json {
		return c.print(c.out, struct {
			Time time.Time `json:"time"`
			keyState
		}{at, c.asJSON(f.Key, f.node, f.State)})
	}
	text := "free"
	switch {
	case len(f.Holds) > 0:
		var holders []string
		for _, h := range f.Holds {
			holders = append(holders, fmt.Sprintf("%s (%s left, print %s)", who(h), shortly(h.Left), h.Print))
		}
		text = "held by " + strings.Join(holders, ", ")
	case f.Foreign:
		text = "held by other software, without an end"
	case f.Reserved > 0:
		text = "reserved"
	}
	if f.Waiting > 0 {
		text += fmt.Sprintf(", %d waiting", f.Waiting)
	}
	_, err := fmt.Fprintf(c.out, "%s  %s  %s%s\n", at.Format("15:04:05.000"), printable(f.Key), text, optional("  on ", f.node))
	return err
}
