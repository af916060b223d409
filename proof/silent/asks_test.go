package silent

import "testing"

func TestWhatKeepsAConnectionAsksForNothing(t *testing.T) {
	ping, data := "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678", "\x00\x00\x01\x00\x00\x00\x00\x00\x01x"
	update := "\x00\x00\x04\x08\x00\x00\x00\x00\x001234"
	for text, want := range map[string]bool{
		"PING\r\n": false, "PONG\r\nPING\r\n": false, "PING\r\nPUB a 0\r\n\r\n": true, "PUB a 4\r\nPING\r\n": true, "PING\r\nPI": true,
		"*1\r\n$4\r\nPING\r\n": true, // of Redis: a call of its own
		ping:                   false, update + ping: false, ping + data: true, data: true, ping[:12]: true,
		"Q\x00\x00\x00\x0dSELECT 1\x00": true, // PostgreSQL
		"\x09\x00\x00\x00\x03SELECT 1":  true, // MySQL
		"\x17\x03\x03\x00\x05hello":     true, // TLS
	} {
		if got := asks([]byte(text)); got != want {
			t.Errorf("%q: %v; want %v", text, got, want)
		}
	}
}
