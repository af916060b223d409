package silent

import "bytes"

// asks tells whether a client asks for something. A client library writes by itself too, to test a connection
// or to keep it: a test would be about that connection, and not about the one of its call.
func asks(b []byte) bool { return !isHeartbeat(b) && !isHousekeeping(b) }

// isHeartbeat is true for messages of NATS that keep a connection.
func isHeartbeat(b []byte) bool {
	for len(b) > 0 {
		line, rest, whole := bytes.Cut(b, []byte("\r\n"))
		if word := string(line); !whole || word != "PING" && word != "PONG" {
			return false
		}
		b = rest
	}
	return true
}

// The types of frames of HTTP/2 that are about a connection: RFC 9113, section 6.
const (
	frameSettings     = 0x4
	framePing         = 0x6
	frameWindowUpdate = 0x8
)

// isHousekeeping is true for whole frames of HTTP/2 that are about their connection.
func isHousekeeping(b []byte) bool {
	const header = 9
	for len(b) > 0 {
		if len(b) < header {
			return false
		}
		length := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		if kind := b[3]; len(b) < header+length || kind != frameSettings && kind != framePing && kind != frameWindowUpdate {
			return false
		}
		b = b[header+length:]
	}
	return true
}
