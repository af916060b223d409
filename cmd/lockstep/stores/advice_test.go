package stores

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
)

// The kinds of trouble that a real server shows seldom. The others are in remedies_linux_test.go of the
// command.
func TestAdviceByTheKindOfError(t *testing.T) {
	reply := func(text string) error { return &driver.ReplyError{Text: text} }
	state := func(state string) error { return &sqlstore.StatementError{State: state, Err: errors.New("told")} }
	member := func(text string) error { return &etcd.Error{Err: errors.New(text)} }
	server := func(code int, text string) error {
		return &natsstore.Error{Code: code, Server: "a:1", Err: errors.New(text)}
	}
	untrusted := error(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}})
	down := error(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	noHost := error(&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "h"}})
	for name, family := range map[string]struct {
		of   func(error) (string, bool)
		says map[error]string // empty: nothing but that the server answered; "-": it did not
	}{
		"Redis": {adviseRedis, map[error]string{
			reply("LOADING Redis is loading the dataset in memory"): "wait", reply("BUSY Redis is busy running a script"): "SCRIPT KILL",
			reply("READONLY You can't write against a read only replica."): "the master", reply("MASTERDOWN Link with MASTER is down"): "the master",
			reply("MOVED 1 a:1"): "redis+cluster://", reply("CLUSTERDOWN The cluster is down"): "--cluster check",
			reply("DENIED Redis is running in protected mode because"): "requirepass", reply("NOAUTH Authentication required."): "PASSWORD",
			reply("WRONGTYPE Operation against a key"): "-key", reply("ERR unknown command 'GET'"): "", reply("ERR something new"): "", down: "-",
		}},
		"PostgreSQL": {advisePostgreSQL, map[error]string{
			state("53100"): "disk", state("53200"): "memory", state("57P03"): "wait", state("55P03"): "pg_stat_activity", state("3F000"): "lockstep install",
			state("42883"): "lockstep install", state("42704"): "parameters", state("25006"): "target_session_attrs=read-write", state("XX000"): "", down: "-",
		}},
		"MySQL": {adviseMySQL, map[error]string{
			state("1114"): "disk", state("1040"): "max_connections", state("1205"): "INNODB STATUS", state("1969"): "INNODB STATUS", state("1290"): "option that the error names",
			state("1142"): "GRANT", state("1227"): "SHOW GRANTS", state("9999"): "", down: "-",
		}},
		"SQLite": {adviseSQLite, map[error]string{
			state("8"): "read-only", state("13"): "disk", state("10"): "disk", state("5"): "fuser", state("11"): "backup", state("99"): "",
		}},
		"etcd": {adviseEtcd, map[error]string{
			member("etcdserver: mvcc: database space exceeded"): "alarm disarm", member("etcdserver: corrupt cluster"): "hashkv", member("etcdserver: no leader"): "endpoint status",
			member("etcdserver: invalid auth token"): "USER:PASSWORD", member("connection refused"): "-", member("x509: certificate signed by unknown authority"): "ca=FILE", member("authentication handshake failed: EOF"): "scheme without TLS",
			member("error reading server preface: EOF"): "scheme with TLS", member("remote error: tls: handshake failure"): "cert=FILE", member("context deadline exceeded"): "-", down: "-",
		}},
		"NATS": {adviseNATS, map[error]string{
			server(10008, "JetStream system temporarily unavailable"): "servers that are down", server(10047, "insufficient storage resources"): "storage",
			server(10059, "stream not found"): "lockstep install", server(10039, "jetstream not enabled for account"): "account of the user",
			server(0, "nobody takes $JS.API.STREAM.INFO.LOCKSTEP"): "jetstream {}", server(0, "not connected to a:1 (RECONNECTING)"): "-",
			server(0, "not connected to a:1 (RECONNECTING, EOF)"): "log of the server", server(10999, "something new"): "", down: "-",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for err, says := range family.says {
				remedy, answered := advise(family.of)(fmt.Errorf("lockstep: check: %w", err))
				if answered != (says != "-") || !strings.Contains(remedy, strings.Trim(says, "-")) || says == "" && remedy != "" {
					t.Errorf("%v: %q, answered %v; want %q", err, remedy, answered, says)
				}
			}
			if name == "SQLite" { // it has no network
				return
			}
			for err, says := range map[error]string{untrusted: "ca=FILE", &net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}: "cert=FILE"} {
				if remedy, answered := advise(family.of)(err); !strings.Contains(remedy, says) || !answered {
					t.Errorf("%v: %q, answered %v", err, remedy, answered)
				}
			}
			if remedy, answered := advise(family.of)(noHost); !strings.Contains(remedy, "name of the host") || answered {
				t.Errorf("%v: %q, answered %v", noHost, remedy, answered)
			}
		})
	}
	if remedy, answered := adviseRedis(fmt.Errorf("server a:1: %w", io.EOF)); remedy != "" || answered {
		t.Errorf("an end of a connection is taken for an answer: %q", remedy)
	}
}
