package goredis

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	client "github.com/redis/go-redis/v9"
)

// quiet keeps go-redis from writing a line to standard error for each dial that fails. Its logger is
// one for the whole program and belongs to the application, and no option of a client turns the line
// off. So the dial succeeds, and the first write on its connection fails with the error of the dial:
// that is the HELLO of the handshake, whose error go-redis returns without a line.
type quiet struct{}

func (quiet) DialHook(next client.DialHook) client.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			// go-redis unwraps an error of the handshake once, and leaves a joined one alone
			return undialed{address{network, addr}, errors.Join(err)}, nil
		}
		return c, nil
	}
}

func (quiet) ProcessHook(next client.ProcessHook) client.ProcessHook { return next }

func (quiet) ProcessPipelineHook(next client.ProcessPipelineHook) client.ProcessPipelineHook {
	return next
}

// undialed is what stands for a connection that could not be opened.
type undialed struct {
	to  address
	err error
}

func (c undialed) Read([]byte) (int, error)       { return 0, c.err }
func (c undialed) Write([]byte) (int, error)      { return 0, c.err }
func (undialed) Close() error                     { return nil }
func (c undialed) LocalAddr() net.Addr            { return c.to }
func (c undialed) RemoteAddr() net.Addr           { return c.to }
func (undialed) SetDeadline(time.Time) error      { return nil }
func (undialed) SetReadDeadline(time.Time) error  { return nil }
func (undialed) SetWriteDeadline(time.Time) error { return nil }

// SyscallConn fails, by which go-redis drops a connection that it has opened to spare (MinIdleConns).
func (c undialed) SyscallConn() (syscall.RawConn, error) { return nil, c.err }

type address struct{ network, addr string }

func (a address) Network() string { return a.network }
func (a address) String() string  { return a.addr }
