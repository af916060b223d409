package sqlstore

import (
	"database/sql"
	"errors"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/lockstep-go/lockstep/backends"
)

// A place is where the server of a store is, as far as it is known. It is there for the texts of errors.
type place struct {
	system string // empty: there is no server
	asked  atomic.Bool
	addr   atomic.Value // a string
}

// Endpoint is the address of the server, or "".
func (p *place) Endpoint() string {
	if p.system == "" {
		return ""
	}
	addr, _ := p.addr.Load().(string)
	return addr
}

// locate puts the address before an error that does not have it.
func (p *place) locate(err error) error {
	addr := p.Endpoint()
	if err == nil || addr == "" || errors.As(err, new(backends.Invalid)) || strings.Contains(err.Error(), addr) {
		return err
	}
	return located{err, p.system + " at " + addr}
}

// located is an error of a server, with the address of the server.
type located struct {
	error

	at string
}

func (e located) Unwrap() error { return e.error }
func (e located) Error() string { return e.at + ": " + e.error.Error() }

// ask asks the first connection of a *sql.DB for the address, which the *sql.DB itself does not tell.
func (p *place) ask(c *sql.Conn) {
	if p.system == "" || p.Endpoint() != "" || p.asked.Swap(true) {
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
