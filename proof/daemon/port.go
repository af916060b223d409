package daemon

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// A Port is a TCP port of this host for a server, which keeps it while the server is down.
type Port struct {
	Number int
	sign   net.PacketConn
}

// ReservePort finds a free port below the ephemeral range of all common systems. A server could not
// restart on a port that the kernel chose (":0"), since that is an ephemeral one: while the server
// is down, any outgoing connection may get its port, and a client that dials the port may even be
// connected to itself.
//
// The UDP port of the same number stays open. It tells other test processes that the number is in
// use although nothing listens on the TCP port.
func ReservePort() (*Port, error) {
	const first, count, attempts = 20000, 12000, 200
	var last error
	for range attempts {
		number := first + rand.IntN(count)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(number))
		sign, err := net.ListenPacket("udp", addr)
		if err != nil {
			last = err
			continue
		}
		probe, err := net.Listen("tcp", addr)
		if err != nil {
			last = err
			sign.Close()
			continue
		}
		probe.Close()
		return &Port{number, sign}, nil
	}
	return nil, fmt.Errorf("no free port: %w", last)
}

// Close frees the number.
func (p *Port) Close() { p.sign.Close() }

// Addr is the address of the port.
func (p *Port) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Number)) }
