package goredis_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	client "github.com/redis/go-redis/v9"
)

// problems lists what Check finds, in order, those that are unsafe with an exclamation mark.
func problems(r redisstore.Report) string {
	var all []string
	for _, f := range r.Findings {
		p := string(f.Problem)
		if f.Unsafe {
			p += "!"
		}
		all = append(all, p)
	}
	return strings.Join(all, " ")
}

func check(t *testing.T, o *client.Options, opts ...redisstore.Option) redisstore.Report {
	t.Helper()
	r, err := goredis.New(dial(t, o), opts...).Check(trial.Patient(t))
	if err != nil {
		t.Fatalf("Check = %v", err)
	}
	for _, f := range r.Findings {
		if f.Detail == "" || f.Consequence == "" {
			t.Errorf("finding without words: %+v", f)
		}
	}
	return r
}

func TestCheckOfAFreshServerWithoutPersistence(t *testing.T) {
	server := redistest.Start(t)
	r := check(t, &client.Options{Addr: server.Addr()})
	if got := problems(r); got != "restarted! persistence" {
		t.Errorf("findings: %s", got)
	}
	if r.RunID == "" || r.Version == "" || r.Role != "master" || r.Uptime < 0 || r.Eviction != "noeviction" || r.AOF || r.RoundTrip <= 0 {
		t.Errorf("report: %+v", r)
	}
	if r.ClockSkew.Abs() > r.RoundTrip {
		t.Errorf("skew %v with a round trip of %v, on one machine", r.ClockSkew, r.RoundTrip)
	}
	if r.Err() == nil || r.Err(redisstore.ProblemRestarted) != nil {
		t.Errorf("Err = %v, with the problem allowed: %v", r.Err(), r.Err(redisstore.ProblemRestarted))
	}
}

func TestCheckFindsNothingWhereAllIsWell(t *testing.T) {
	server := redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always"))
	eventually(t, "a server that is up long enough", func() bool {
		return problems(check(t, &client.Options{Addr: server.Addr()}, redisstore.WithMaxTTL(10*time.Millisecond))) == ""
	})
}

func TestCheckFindsEvictionAndLazyPersistence(t *testing.T) {
	server := redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--maxmemory-policy", "volatile-ttl"))
	r := check(t, &client.Options{Addr: server.Addr()})
	if got := problems(r); got != "restarted! eviction! persistence" || r.Eviction != "volatile-ttl" || !r.AOF || r.Fsync != "everysec" {
		t.Errorf("findings: %s in %+v", got, r)
	}
}

func TestCheckFindsReplication(t *testing.T) {
	servers := redistest.StartN(t, 2)
	host, port, _ := strings.Cut(servers[0].Addr(), ":")
	if _, err := servers[1].Do("REPLICAOF", host, port); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the replica is connected", func() bool {
		return check(t, &client.Options{Addr: servers[0].Addr()}).Replicas == 1
	})
	if got := problems(check(t, &client.Options{Addr: servers[0].Addr()})); got != "restarted! persistence replicas" {
		t.Errorf("findings on the master: %s", got)
	}
	if got := problems(check(t, &client.Options{Addr: servers[1].Addr()})); got != "role! restarted! persistence" {
		t.Errorf("findings on the replica: %s", got)
	}
}

func TestMissingPermissionsAreFindings(t *testing.T) {
	server := redistest.Start(t, redistest.WithArgs("--appendonly", "yes"))
	for user, want := range map[string]struct{ minus, findings string }{
		"a": {"-info", "permission"},
		"b": {"-config", "restarted! permission"},
		"c": {"-time", "restarted! persistence permission"},
	} {
		if _, err := server.Do("ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@all", want.minus); err != nil {
			t.Fatal(err)
		}
		r := check(t, &client.Options{Addr: server.Addr(), Username: user, Password: "secret"})
		if got := problems(r); got != want.findings {
			t.Errorf("with %s: %s, want %s", want.minus, got, want.findings)
		}
	}
}

func TestCheckOfAnEmbeddedServerSaysWhatItCannotTell(t *testing.T) {
	r := check(t, &client.Options{Addr: startEmbedded(t)})
	t.Log(problems(r), r)
	if r.Err() != nil {
		t.Errorf("Err = %v", r.Err())
	}
}
