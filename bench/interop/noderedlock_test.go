package interop_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/redistest"
)

func TestNodeRedlock(t *testing.T) {
	t.Parallel()
	dir := nodePackages(t)
	for _, version := range []string{"4", "5"} {
		t.Run(version+" on one server", func(t *testing.T) {
			interoperates(t, 1, 4, onOneServer, nodeRedlock(dir, version))
		})
		t.Run(version+" on five servers", func(t *testing.T) {
			interoperates(t, 5, 3, onFiveServers, nodeRedlock(dir, version))
		})
		t.Run(version+" shares a key", func(t *testing.T) {
			ss := servers{redistest.Start(t)}
			redlock := nodeRedlock(dir, version)(t, ss)
			neitherStarves(t, ss.clients(t)[0], polling(redlock))
		})
	}
}

// nodePackages installs what node/package-lock.json names in a folder that ends with the test. Without node, npm or
// their registry the test is left out, or fails under LOCKSTEP_REQUIRE_REDIS=1.
func nodePackages(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			redistest.Missing(t, "%s is not installed", program)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "driver.js"} {
		text, err := os.ReadFile(filepath.Join("node", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier",
		"--fetch-retries=1", "--fetch-timeout=20000")
	install.Dir = dir
	install.WaitDelay = time.Second
	out, err := install.CombinedOutput()
	switch unreachable := regexp.MustCompile(`ENOTFOUND|EAI_|ECONN|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ENOTCACHED|network`); {
	case err != nil && (ctx.Err() != nil || unreachable.Match(out)):
		redistest.Missing(t, "the npm registry can't be reached (npm ci: %v, %s)", err, unreachable.Find(out))
	case err != nil:
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	return dir
}

// nodeRedlock starts a process that locks with the npm package redlock, of a version.
func nodeRedlock(dir, version string) func(*testing.T, servers) theirs {
	return func(t *testing.T, ss servers) theirs {
		t.Helper()
		cmd := exec.Command("node", append([]string{"driver.js", version}, ss.addrs()...)...)
		cmd.Dir = dir
		var stderr strings.Builder
		cmd.Stderr = &stderr
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		d := &driver{requests: stdin, pending: make(map[int]chan driverReply)}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			d.read(stdout)
		}()
		t.Cleanup(func() {
			stdin.Close() // which ends it
			<-ended
			if err := cmd.Wait(); err != nil {
				t.Errorf("driver.js: %v\n%s", err, stderr.String())
			}
		})
		return d
	}
}

// polling asks as often as the other programs do.
func polling(software theirs) locking {
	return func(ctx context.Context, key string) (func() error, error) {
		for {
			// or what it gets is nobody's
			lock, err := software.Acquire(context.WithoutCancel(ctx), key, long, false)
			switch {
			case err == nil:
				return func() error { return lock.Release(context.Background()) }, nil
			case ctx.Err() != nil || !software.Refused(err):
				return nil, err
			}
			time.Sleep(interval)
		}
	}
}

// driver speaks the protocol of node/driver.js.
type driver struct {
	mu       sync.Mutex
	requests io.Writer
	pending  map[int]chan driverReply
	last     int
}

type driverRequest struct {
	ID   int    `json:"id"`
	Op   string `json:"op"`
	Key  string `json:"key,omitempty"`
	TTL  int64  `json:"ttl,omitempty"`
	Wait bool   `json:"wait,omitempty"`
	Lock int    `json:"lock,omitempty"`
}

type driverReply struct {
	ID      int      `json:"id"`
	Name    string   `json:"error"`
	Message string   `json:"message"`
	Faults  []string `json:"faults"`
}

func (r driverReply) Error() string {
	return fmt.Sprintf("%s: %s (faults: %q)", r.Name, r.Message, r.Faults)
}

func (d *driver) Acquire(ctx context.Context, key string, ttl time.Duration, wait bool) (theirLock, error) {
	id, err := d.do(ctx, driverRequest{Op: "acquire", Key: key, TTL: ttl.Milliseconds(), Wait: wait})
	return driverLock{d, id}, err
}

// Refused: there is one error for all, and the faults tell whether a server had another reason.
func (*driver) Refused(err error) bool {
	var r driverReply
	return errors.As(err, &r) && (r.Name == "LockError" || r.Name == "ExecutionError") && len(r.Faults) == 0
}

func (d *driver) Lost(err error) bool { return d.Refused(err) }

type driverLock struct {
	driver *driver
	id     int
}

func (l driverLock) Extend(ctx context.Context, ttl time.Duration) error {
	_, err := l.driver.do(ctx, driverRequest{Op: "extend", Lock: l.id, TTL: ttl.Milliseconds()})
	return err
}

func (l driverLock) Release(ctx context.Context) error {
	_, err := l.driver.do(ctx, driverRequest{Op: "release", Lock: l.id})
	return err
}

// do sends a request and waits for its reply. It returns the number of the request, by which a lock goes.
func (d *driver) do(ctx context.Context, r driverRequest) (int, error) {
	replied := make(chan driverReply, 1)
	d.mu.Lock()
	d.last++
	r.ID = d.last
	d.pending[r.ID] = replied
	err := json.NewEncoder(d.requests).Encode(r)
	d.mu.Unlock()
	if err != nil {
		return r.ID, err
	}
	select {
	case reply, ok := <-replied:
		switch {
		case !ok:
			return r.ID, errors.New("driver.js has ended")
		case reply.Name != "":
			return r.ID, reply
		}
		return r.ID, nil
	case <-ctx.Done():
		return r.ID, ctx.Err()
	}
}

func (d *driver) read(replies io.Reader) {
	for lines := bufio.NewScanner(replies); lines.Scan(); {
		var r driverReply
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			break
		}
		d.mu.Lock()
		d.pending[r.ID] <- r
		delete(d.pending, r.ID)
		d.mu.Unlock()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, replied := range d.pending {
		close(replied)
	}
}
