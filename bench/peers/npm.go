package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

//go:embed node
var nodeFiles embed.FS

// npm installs the packages of node/package-lock.json in a folder that is removed at the end.
type npm struct {
	once   sync.Once
	folder string
	failed error
}

var errNoNode = errors.New("node, npm or the npm registry is missing")

// install does so once. Without node, npm or their registry, the rows that need them fail.
func (n *npm) install() {
	n.once.Do(func() {
		if n.failed = n.put(); n.failed != nil {
			fmt.Fprintf(os.Stderr, "npm redis-semaphore is left out: %v\n", n.failed)
		}
	})
}

func (n *npm) put() error {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: %w", errNoNode, err)
		}
	}
	var err error
	if n.folder, err = os.MkdirTemp("", "lockstep-peers-*"); err != nil {
		return err
	}
	files, err := nodeFiles.ReadDir("node")
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := nodeFiles.ReadFile("node/" + f.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(n.folder, f.Name()), text, 0o600); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier",
		"--fetch-retries=1", "--fetch-timeout=20000")
	cmd.Dir, cmd.WaitDelay = n.folder, time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: npm ci: %w, %.200s", errNoNode, err, out)
	}
	return nil
}

func (n *npm) remove() {
	if n.folder != "" {
		_ = os.RemoveAll(n.folder)
	}
}

// npmFleet is fleet in a process of node, which has all clients.
func (t *turn) npmFleet(n int, hold time.Duration) (count func() (tally, error), err error) {
	if t.npm.failed != nil {
		return nil, t.npm.failed
	}
	cmd := exec.Command("node", "semaphore.js", t.addrs(1)[0], t.key, strconv.Itoa(permits), strconv.Itoa(n),
		strconv.FormatInt(hold.Milliseconds(), 10), strconv.FormatInt(ttl.Milliseconds(), 10))
	cmd.Dir = t.npm.folder
	c, err := t.spawn(cmd)
	if err != nil {
		return nil, err
	}
	return func() (so tally, err error) {
		if err := c.tell("count"); err != nil {
			return so, err
		}
		return so, c.hear("tally", &so)
	}, nil
}
