package laboratory

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/redis/go-redis/v9"
)

// A server is one that strategies lock on. It may have another address after a restart.
type server interface {
	Addr() string
	Restart() error // without what it remembered
}

// A park is where servers come from. Every row has some of its own, since it restarts them.
type park struct {
	name    string // in the report
	flags   string // that choose it
	noTimes string // why its times are not measured; empty: they are
	prefix  string // of all keys: others may use the same servers

	start   func() (server, func() error, error) // nil: there are none but those below
	given   []server
	mu      sync.Mutex
	closers []func() error
}

var errTooFew = errors.New("needs more servers than there are")

func openPark(o Options) (*park, error) {
	p := &park{prefix: "compare/" + rand.Text()[:8] + "/"}
	switch {
	case o.Environment != "":
		p.name = "the servers in REDIS_ADDR"
		for addr := range strings.SplitSeq(o.Environment, ",") {
			p.given = append(p.given, givenServer(strings.TrimSpace(addr)))
		}
	case o.Servers == "embedded":
		p.name, p.start = "embedded servers", startEmbedded
		p.noTimes = "embedded servers run scripts several times as slowly as a real one: use -servers redis"
	case o.Servers == "redis":
		if _, err := exec.LookPath(redisProgram); err != nil {
			return nil, fmt.Errorf("%s is not installed: %w", redisProgram, err)
		}
		dir, err := os.MkdirTemp("", "compare-")
		if err != nil {
			return nil, err
		}
		p.closers = append(p.closers, func() error { return os.RemoveAll(dir) })
		p.name, p.flags = redisProgram+" processes", " -servers redis"
		p.start = func() (server, func() error, error) { return startRedis(dir) }
	default:
		return nil, fmt.Errorf("no servers %q: there are embedded and redis", o.Servers)
	}
	return p, nil
}

// take gives n servers that nobody else restarts.
func (p *park) take(n int) ([]server, error) {
	if p.start == nil {
		if n > len(p.given) {
			return nil, fmt.Errorf("%w: %d, and REDIS_ADDR has %d", errTooFew, n, len(p.given))
		}
		return p.given[:n], nil
	}
	servers := make([]server, n)
	for i := range servers {
		s, stop, err := p.start()
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		p.closers = append(p.closers, stop)
		p.mu.Unlock()
		servers[i] = s
	}
	return servers, nil
}

// close stops the servers that were started, and removes our keys from those that were there.
func (p *park) close() error {
	var errs []error
	for _, s := range p.given {
		errs = append(errs, sweep(s.Addr(), p.prefix))
	}
	for i := len(p.closers) - 1; i >= 0; i-- {
		errs = append(errs, p.closers[i]())
	}
	return errors.Join(errs...)
}

// sweep removes the keys of locks, and those beside them, which have the name of the lock in theirs.
func sweep(addr, prefix string) error {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer client.Close()
	keys := client.Scan(ctx, 0, "*"+prefix+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := client.Del(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}

// givenServer is one that is not ours to restart.
type givenServer string

func (s givenServer) Addr() string { return string(s) }

var errNotOurs = errors.New("your servers are not restarted")

func (s givenServer) Restart() error { return errNotOurs }

// embeddedServer lives in this process.
type embeddedServer struct {
	mu  sync.Mutex
	now *embedded.Server
}

func startEmbedded() (server, func() error, error) {
	now, err := embedded.Start()
	if err != nil {
		return nil, nil, err
	}
	s := &embeddedServer{now: now}
	return s, s.stop, nil
}

func (s *embeddedServer) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.Addr()
}

// Restart cuts all connections, and then there is an empty server.
func (s *embeddedServer) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Close()
	next, err := embedded.Start()
	if err == nil {
		s.now = next
	}
	return err
}

func (s *embeddedServer) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Close()
	return nil
}
