package sqlstore

import (
	"database/sql"
	"errors"
	"net"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/lockstep-go/lockstep/backends"
)

// A place is where the database of a store is, as far as it is known: the address of a server, or the path
// of a file. It is there for the texts of errors.
type place struct {
	system string
	asked  atomic.Bool
	addr   atomic.Value // a string
}

// Endpoint is the address or the path, or "".
func (p *place) Endpoint() string {
	addr, _ := p.addr.Load().(string)
	return addr
}

// locate puts the address before an error that does not have it, or how to give it.
func (p *place) locate(err error) error {
	if err == nil || errors.As(err, new(backends.Invalid)) {
		return err
	}
	addr := p.Endpoint()
	switch {
	case addr == "" && !hostPort.MatchString(err.Error()):
		return located{err, p.system + " (name its address with sqlstore.WithAddress)"}
	case addr == "" || strings.Contains(err.Error(), addr):
		return err
	}
	return located{err, p.system + " at " + addr}
}

// hostPort finds the address that a driver has told because it could not connect.
var hostPort = regexp.MustCompile(`[\w\]]:\d{1,5}\b`)

// located is an error with the address of the server, or the path of the file.
type located struct {
	error

	at string
}

func (e located) Unwrap() error { return e.error }
func (e located) Error() string { return e.at + ": " + e.error.Error() }

// look finds the address in the connector of a *sql.DB, so it is known before there is a
// connection. No method tells it, and the packages of drivers may not be imported here. So this
// reads DB.connector.cfg.Addr of github.com/go-sql-driver/mysql, or the DSN that database/sql keeps
// for a driver of SQLite. Nothing is found if a connector has another form, as with a driver that
// wraps one of these.
func (p *place) look(db *sql.DB) {
	if db == nil || p.Endpoint() != "" {
		return
	}
	connector := field(reflect.ValueOf(db), "connector")
	if addr := field(field(connector, "cfg"), "Addr"); addr.Kind() == reflect.String && addr.String() != "" {
		p.addr.Store(addr.String())
	}
	if dsn := field(connector, "dsn"); dsn.Kind() == reflect.String && p.system == sqliteName {
		p.addr.Store(fileOf(dsn.String()))
	}
}

// fileOf is the path in a DSN of SQLite.
func fileOf(dsn string) string {
	path, options, _ := strings.Cut(strings.TrimPrefix(dsn, "file:"), "?")
	if path == "" || strings.Contains(options, "mode=memory") {
		return inMemory
	}
	if u, err := url.PathUnescape(path); err == nil && strings.HasPrefix(dsn, "file:") {
		path = u
	}
	return path
}

const inMemory = ":memory:"

// field is a field of a struct, or of the one that v leads to; not valid: there is none.
func field(v reflect.Value, name string) reflect.Value {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v.FieldByName(name)
}

// ask asks the first connection of a *sql.DB for the address, which the *sql.DB itself does not tell.
func (p *place) ask(c *sql.Conn) {
	if p.system != postgresqlName || p.Endpoint() != "" || p.asked.Swap(true) {
		return
	}
	_ = c.Raw(func(driver any) error {
		if addr := addressOfPGX(reflect.ValueOf(driver)); addr != "" {
			p.addr.Store(addr)
		}
		return nil
	})
}

// addressOfPGX is where a connection of pgx for database/sql was opened to: driver.Conn().Config() has Host,
// Port and Fallbacks. That package may not be imported here. It is "" for any other driver.
func addressOfPGX(driver reflect.Value) string {
	conn := result(driver.MethodByName("Conn"))
	if conn.Kind() != reflect.Pointer || conn.IsNil() {
		return ""
	}
	config := reflect.Indirect(result(conn.MethodByName("Config")))
	servers := []reflect.Value{config}
	if config.Kind() == reflect.Struct {
		if others := config.FieldByName("Fallbacks"); others.Kind() == reflect.Slice {
			for i := range others.Len() {
				servers = append(servers, reflect.Indirect(others.Index(i)))
			}
		}
	}
	var all []string
	for _, server := range servers {
		if server.Kind() != reflect.Struct {
			return ""
		}
		host, port := server.FieldByName("Host"), server.FieldByName("Port")
		if host.Kind() != reflect.String || port.Kind() != reflect.Uint16 {
			return ""
		}
		if addr := net.JoinHostPort(host.String(), strconv.FormatUint(port.Uint(), 10)); !slices.Contains(all, addr) {
			all = append(all, addr) // without TLS, the same one may come again
		}
	}
	return strings.Join(all, ",")
}

// result is what a method returns that takes nothing; not valid: there is no such method.
func result(method reflect.Value) reflect.Value {
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return reflect.Value{}
	}
	return method.Call(nil)[0]
}
