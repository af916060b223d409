package stores

import (
	"context"
	"encoding/pem"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/cmd/lockstep/command"
)

var families = map[string]func() command.Family{
	"Redis": Redis, "PostgreSQL": PostgreSQL, "MySQL": MySQL, "SQLite": SQLite, "etcd": Etcd, "NATS": NATS,
}

// Nobody listens where the examples point to. They open all the same: a call tells that the store does
// not answer.
func TestEveryExampleOpens(t *testing.T) {
	for name, family := range families {
		f := family()
		for _, example := range f.Examples {
			scheme, _, _ := strings.Cut(example, "://")
			if !slices.Contains(f.Schemes, scheme) {
				t.Errorf("%s: %s has none of the schemes %v", name, example, f.Schemes)
			}
			if strings.Contains(example, "creds=") || strings.Contains(example, "ca=") {
				continue // names files
			}
			if strings.Contains(example, "user:password@") && strings.HasPrefix(example, "etcd://") {
				example = strings.Replace(example, "user:password@", "", 1) // the client logs in when it is made
			}
			s, err := f.Open(t.Context(), loopback(example), command.Options{MaxTTL: 30 * time.Second})
			if err != nil {
				t.Errorf("%s: %s: %v", name, example, err)
				continue
			}
			s.Close()
		}
	}
}

// loopback leads the example to a port of this computer that is closed.
func loopback(text string) string {
	for _, host := range []string{"host1", "host2", "host3", "host", "pooler"} {
		text = strings.ReplaceAll(text, host+":", "127.0.0.1:")
	}
	return text
}

func TestURLsThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"sqlite://locks.db":                       "three slashes",
		"sqlite:///locks.db?mode=memory":          "has no parameters",
		"mysql://host:3306/db?maxAllowedPacket=x": "invalid",
		"nats://host:4222?replicas=three":         "replicas",
		"etcds://host:2379?ca=/no/such/file":      "no such file",
		"redis://host:6379?scripts=no":            "use on or off",
		"redis://host:6379?replicas=many":         "many",
		"redis://host:6379?wakes=of":              "use on or off",
		"postgres://host:5432/db?wakes=of":        "use on or off",
		"postgres://host:5432/db?ca=/no/file":     "no such file",
		"redis://host:6379?nonsense=1":            "nonsense",
		"nats://host:4222?creds=/no/such/file":    "no such file",
	} {
		scheme, _, _ := strings.Cut(text, "://")
		for name, family := range families {
			f := family()
			if !slices.Contains(f.Schemes, scheme) {
				continue
			}
			s, err := f.Open(t.Context(), text, command.Options{MaxTTL: 30 * time.Second})
			if err == nil {
				s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %s: %v; want %q", name, text, err, want)
			}
		}
	}
	if _, err := NATS().Open(context.Background(), "nats://host", command.Options{Prefix: "x", MaxTTL: time.Second}); err == nil || !strings.Contains(err.Error(), "subject=") {
		t.Errorf("a prefix in NATS: %v", err)
	}
}

func TestTheNameOfARedisServer(t *testing.T) {
	for version, want := range map[string]string{"7.0.15": "Redis 7.0.15", "Valkey 9.1.2": "Valkey 9.1.2"} {
		if got := redisServer(version); got != want {
			t.Errorf("%s: %q; want %q", version, got, want)
		}
	}
}

func TestTheFilesOfTLSHaveTheirNamesInPostgreSQL(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca")
	if err := os.WriteFile(file, pemOf(t), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[string]string{"": "verify-full", "&sslmode=require": "require"} {
		got, err := sslFiles("postgres://u:p@h1:1,h2:2/db?ca=" + file + mode)
		if err != nil || !strings.HasPrefix(got, "postgres://u:p@h1:1,h2:2/db?") || !strings.Contains(got, "sslrootcert="+url.QueryEscape(file)) ||
			!strings.Contains(got, "sslmode="+want) || strings.Contains(got, "?ca=") {
			t.Errorf("%s, %v", got, err)
		}
	}
	if got, err := sslFiles("postgres://h1:1,h2:2/db"); got != "postgres://h1:1,h2:2/db" || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}

// pemOf is some certificate.
func pemOf(t *testing.T) []byte {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func TestTheHostsOfACluster(t *testing.T) {
	u, _ := url.Parse("nats+tls://user:p%40ss@h1:4222")
	if got, want := natsServers(u, []string{"h2:4222"}), "tls://user:p%40ss@h1:4222,tls://user:p%40ss@h2:4222"; got != want {
		t.Errorf("NATS: %s; want %s", got, want)
	}
	c, err := etcdConfig("etcd://user:p%40ss@h1:2379,h2:2379")
	if err != nil || !slices.Equal(c.Endpoints, []string{"http://h1:2379", "http://h2:2379"}) || c.Username != "user" || c.Password != "p@ss" {
		t.Errorf("etcd: %+v, %v", c, err)
	}
}
