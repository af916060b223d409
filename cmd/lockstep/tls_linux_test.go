package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"database/sql"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/etcdtest"
	"github.com/lockstep-go/lockstep/proof/mariadbtest"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/nats-io/nats-server/v2/server"
)

// authority is a private CA with a certificate for servers and one for clients.
type authority struct {
	folder string
	pool   *x509.CertPool
	server tls.Certificate
}

func (a authority) file(name string) string { return filepath.Join(a.folder, name+".pem") }

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{folder: t.TempDir(), pool: x509.NewCertPool()}
	if err := os.Chmod(a.folder, 0o755); err != nil { // servers run as other users
		t.Fatal(err)
	}
	var parent *x509.Certificate
	var parentKey *ecdsa.PrivateKey
	for i, name := range []string{"ca", "server", "client"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			IsCA: i == 0, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}
		if i == 0 {
			parent, parentKey = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
		if err != nil {
			t.Fatal(err)
		}
		secret, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
		mode := os.FileMode(0o644) // MariaDB reads the key of the server as another user
		if name == "client" {
			mode = 0o600
		}
		for file, text := range map[string][]byte{name: cert, name + "-key": private} {
			if err := os.WriteFile(a.file(file), text, mode); err != nil {
				t.Fatal(err)
			}
		}
		switch name {
		case "ca":
			a.pool.AppendCertsFromPEM(cert)
		case "server":
			if a.server, err = tls.X509KeyPair(cert, private); err != nil {
				t.Fatal(err)
			}
		}
	}
	return a
}

func (a authority) config() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{a.server}, ClientCAs: a.pool, ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2"}}
}

// proxy speaks TLS before a server that does not. first is what a protocol says before TLS begins.
func (a authority) proxy(t *testing.T, to string, first func(net.Conn) error) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			plain, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer plain.Close()
				if first != nil && first(plain) != nil {
					return
				}
				conn := tls.Server(plain, a.config())
				if conn.Handshake() != nil {
					return
				}
				server, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer server.Close()
				go func() { _, _ = io.Copy(server, conn); server.Close() }()
				_, _ = io.Copy(conn, server)
			}()
		}
	}()
	return l.Addr().String()
}

// sslRequest is how PostgreSQL begins TLS.
func sslRequest(c net.Conn) error {
	if _, err := io.ReadFull(c, make([]byte, 8)); err != nil {
		return err
	}
	_, err := c.Write([]byte("S"))
	return err
}

// Each scheme takes the same files: of a private CA, and of a certificate that the server asks for.
func TestTheFilesOfTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	for name, start := range map[string]func(t *testing.T) (store string){
		"Redis": func(t *testing.T) string {
			return "rediss://" + a.proxy(t, redistest.Start(t).Addr(), nil)
		},
		"Redis without scripts, wake-ups and quarantine": func(t *testing.T) string {
			return "rediss://" + a.proxy(t, redistest.Start(t).Addr(), nil) + "/0?scripts=off&wakes=off&quarantine=off"
		},
		"Redis Cluster": func(t *testing.T) string {
			node := redistest.StartCluster(t, 1, 0).Servers()[0]
			addr := a.proxy(t, node.Addr(), nil)
			tell(t, node, "CONFIG", "SET", "cluster-announce-port", port(t, addr)) // it leads clients there
			return "rediss+cluster://" + addr
		},
		"Redis Sentinel": func(t *testing.T) string {
			s := redistest.StartSentinel(t, 0)
			master, sentinel := s.Master(), s.Sentinels()[0]
			tell(t, sentinel, "SENTINEL", "REMOVE", redistest.MasterName)
			// it answers with this address, and can't watch what is there: it knows no TLS
			tell(t, sentinel, "SENTINEL", "MONITOR", redistest.MasterName, "127.0.0.1", port(t, a.proxy(t, master.Addr(), nil)), "1")
			return "rediss+sentinel://" + a.proxy(t, sentinel.Addr(), nil) + "/" + redistest.MasterName
		},
		"PostgreSQL": func(t *testing.T) string {
			plain := postgres(pgtest.Start(t).DSN())
			_, rest, _ := strings.Cut(plain, "@")
			host, database, _ := strings.Cut(rest, "/")
			database, _, _ = strings.Cut(database, "?")
			must(t, plain, "install")
			return strings.TrimSuffix(plain, rest) + a.proxy(t, host, sslRequest) + "/" + database + "?wakes=off"
		},
		"MariaDB": func(t *testing.T) string {
			s := mariadbtest.Start(t, "ssl-ca="+a.file("ca"), "ssl-cert="+a.file("server"), "ssl-key="+a.file("server-key"))
			db, err := sql.Open("mysql", s.DSN()+"?multiStatements=true")
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Exec("CREATE USER app REQUIRE X509; GRANT ALL ON test.* TO app"); err != nil {
				t.Fatal(err)
			}
			must(t, "mysql://root@"+s.Addr()+"/test", "install")
			return "mysql://app@" + s.Addr() + "/test"
		},
		"etcd": func(t *testing.T) string {
			c := etcdtest.Start(t, 1, etcdtest.Fast)
			return "etcds://" + a.proxy(t, strings.TrimPrefix(c.Members[0].URL(), "http://"), nil)
		},
		"NATS": func(t *testing.T) string {
			config := a.config()
			config.NextProtos = nil
			s := startNATS(t, func(o *server.Options) { o.TLSConfig, o.TLSVerify, o.TLSTimeout = config, true, 60 })
			store := "nats+tls://" + s.Addr().String()
			must(t, a.with(store), "install")
			return store
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := start(t)
			args := []string{"run", "-timeout", "60s", "-strategy", "single", "a", "--", "true"}
			if code, _, err := run(t, a.with(store), args...); code != 0 {
				t.Errorf("with the files: exit %d: %s", code, err)
			}
			args[2] = "1s"                          // what is refused, or not answered, has no code of its own
			if strings.HasPrefix(store, "rediss") { // their text is looked at, and on a busy machine no answer comes in a second
				args[2] = "20s"
			}
			for what, without := range map[string]string{"without the CA": add(store, "cert="+a.file("client")+"&key="+a.file("client-key")), "without a certificate": add(store, "ca="+a.file("ca"))} {
				code, _, err := run(t, without, args...)
				if code == 0 || code == 64 || err == "" {
					t.Errorf("%s: exit %d: %s", what, code, err)
				}
				if forUsers(t, what, err); strings.HasPrefix(store, "rediss") && what == "without the CA" && !strings.Contains(err, "check ca=FILE in the URL") {
					t.Errorf("%s: %s", what, err)
				}
			}
			for file, says := range map[string]string{"ca=/no/such/file": "no such file", "cert=" + a.file("client"): "go together", "ca=" + a.file("client-key"): "no certificate"} {
				if code, _, err := run(t, add(store, file), args...); code != 64 || !strings.Contains(err, says) {
					t.Errorf("%s: exit %d: %s; want %q", file, code, err, says)
				}
			}
		})
	}
	for _, plain := range []string{"redis://127.0.0.1:1", "redis+cluster://127.0.0.1:1", "nats://127.0.0.1:1", "etcd://127.0.0.1:1"} {
		if code, _, err := run(t, a.with(plain), "test", "a"); code != 64 || !strings.Contains(err, "schemes with TLS") {
			t.Errorf("%s: exit %d: %s", plain, code, err)
		}
	}
}

func tell(t *testing.T, server *redistest.Server, command ...string) {
	t.Helper()
	if reply, err := server.Do(command...); err != nil {
		t.Fatalf("%v: %v, %v", command, reply, err)
	}
}

func port(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func (a authority) with(store string) string {
	return add(store, "ca="+a.file("ca")+"&cert="+a.file("client")+"&key="+a.file("client-key"))
}

func add(store, parameters string) string {
	if strings.Contains(store, "?") {
		return store + "&" + parameters
	}
	return store + "?" + parameters
}
