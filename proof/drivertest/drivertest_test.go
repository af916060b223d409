package drivertest

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/proof/child"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// harnessFor makes what the smallest adapter gives the suite, with an Executor of its Pool.
func harnessFor(over func(p driver.Pool, addr string) driver.Executor) Harness {
	connect := func(t testing.TB, to Server) Client {
		o := []client.DialOption{
			client.DialUsername(to.User), client.DialPassword(to.Password), client.DialDatabase(to.Database),
			client.DialReadTimeout(max(5*time.Second, to.Timeout)), // on a busy machine too
		}
		if to.TLS != nil {
			o = append(o, client.DialUseTLS(true), client.DialTLSConfig(to.TLS))
		}
		if to.Dial != nil {
			o = append(o, client.DialContextFunc(to.Dial))
		}
		pool := &client.Pool{MaxIdle: 100, MaxActive: to.Pool, Wait: to.Pool > 0, DialContext: func(ctx context.Context) (client.Conn, error) {
			return client.DialContext(ctx, "tcp", to.Addr, o...)
		}}
		t.Cleanup(func() { pool.Close() })
		e := over(smallest{pool}, to.Addr)
		return Client{
			Executor: e, Close: func() { pool.Close() },
			New: func(opts ...redisstore.Option) *redisstore.Store { return redisstore.New(e, opts...) },
		}
	}
	return Harness{
		Connect: connect,
		Open: func(t *testing.T, to Server, opts ...redisstore.Option) (*redisstore.Store, func()) {
			c := connect(t, to)
			return c.New(opts...), c.Close
		},
		Embedded: func(t *testing.T) Client {
			server := embedded.New()
			t.Cleanup(server.Close)
			return connect(t, Server{Addr: "127.0.0.1:1", Dial: server.Dial})
		},
		Nil:     map[string]*redisstore.Store{"nil": redisstore.New(nil)},
		Repeats: true,
	}
}

// more are the sentences that the smallest adapter does not pass.
var more = []string{
	"a server that may have forgotten locks is in quarantine", // it tells the family of no new connection
	"errors say which server, what outcome and what to do",    // it does not say what was sent on a new connection
	"a pool that the application uses up loses no lock",       // it has no connections beside its pool
}

func asItIs(p driver.Pool, addr string) driver.Executor { return driver.OverPool(p, addr) }

func TestTheSmallestAdapterPasses(t *testing.T) {
	h := harnessFor(asItIs)
	for _, s := range sentences() {
		if !slices.Contains(more, s.says) {
			t.Run(s.says, func(t *testing.T) {
				if slices.ContainsFunc(patient, func(p storeSentence) bool { return p.says == s.says }) {
					t.Parallel()
				}
				s.test(t, h)
			})
		}
	}
}

// sentences are all sentences as those about stores.
func sentences() []storeSentence {
	all := slices.Concat(stores, faulty, pipelinedStores, patient)
	for _, s := range slices.Concat(executors, pipeliners) {
		all = append(all, storeSentence{s.says, func(t *testing.T, h Harness) {
			s.test(t, func(t *testing.T, to Server) driver.Executor {
				to.Ends = true
				return h.Connect(t, to).Executor
			})
		}})
	}
	return all
}

// A sentence that no adapter can break proves nothing. A failure of a sentence fails the test. So
// each broken adapter runs in another process.
func TestEverySentenceFailsForAnAdapterThatBreaksIt(t *testing.T) {
	const variable = "DRIVERTEST_DOUBLE"
	all := sentences()
	if bug := os.Getenv(variable); bug != "" {
		patience = 5 * time.Second
		d := doubles[slices.IndexFunc(doubles, func(d double) bool { return d.bug == bug })]
		h := harnessFor(asItIs)
		d.harness(&h)
		s := all[slices.IndexFunc(all, func(s storeSentence) bool { return s.says == d.breaks })]
		s.test(t, h)
		return
	}
	var broken []string
	for _, d := range doubles {
		broken = append(broken, d.breaks)
		t.Run(d.bug, func(t *testing.T) {
			full.Only(t)
			t.Parallel()
			test := "TestEverySentenceFailsForAnAdapterThatBreaksIt"
			if d.only != "" {
				test += "$/^" + d.only
			}
			for take := 1; ; take++ {
				cmd := child.Command(t, test, variable+"="+d.bug)
				cmd.Args = append(cmd.Args, "-test.timeout=5m")
				out, err := cmd.CombinedOutput()
				if err != nil && strings.Contains(string(out), d.fails) {
					return
				}
				if take == 3 { // a sentence that is judged again on a busy machine may not meet the bug then
					t.Fatalf("it does not fail by %q, which breaks: %s\n%s", d.fails, d.breaks, out)
				}
				t.Logf("take %d did not fail by %q", take, d.fails)
			}
		})
	}
	for _, s := range all {
		if !slices.Contains(broken, s.says) {
			t.Errorf("no double breaks: %s", s.says)
		}
	}
	for _, says := range slices.Concat(broken, more) {
		if !slices.ContainsFunc(all, func(s storeSentence) bool { return s.says == says }) {
			t.Errorf("there is no such sentence: %s", says)
		}
	}
}
