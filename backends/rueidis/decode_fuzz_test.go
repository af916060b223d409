package rueidis

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"reflect"
	"testing"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/verify/differential/wire"
)

// FuzzDecoding: whatever a server replies, rueidis and the executor hand it on in the terms of the family: alone, sent once, and
// within a pipeline, where the replies stay in order.
func FuzzDecoding(f *testing.F) {
	for _, seed := range []string{"", "\x00", "\x1aOKAY", "\x13OK", "\x44NOPERM no", "\x24ERR ", "\x05\x7f\xff\xff\xff\xff\xff\xff\xff", "\x26", "\x17\x26\x0ax", "\x1f\x24no\x17\x01\x26\x0ax", "\x07"} {
		f.Add([]byte(seed))
	}
	var sent string // by the server, in answer to GET
	o := at("127.0.0.1:1")
	o.ForceSingleClient = true
	o.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go wire.Serve(theirs, func(command []string) string {
			switch command[0] {
			case "HELLO":
				return "%1\r\n$5\r\nproto\r\n:3\r\n"
			case "GET":
				return sent
			}
			return "+PONG\r\n"
		})
		return ours, nil
	}
	e := open(f, o)
	f.Fuzz(func(t *testing.T, data []byte) {
		var want any
		sent, want = wire.Draw(data)
		for name, call := range map[string]func(ctx context.Context, args ...any) (any, error){"Do": e.Do, "Once": e.Once} {
			got, err := call(t.Context(), "GET", "key")
			if !same(got, err, want) {
				t.Errorf("%s of %q = %#v, %v; want %#v", name, sent, got, err, want)
			}
		}
		err := e.Pinned(t.Context(), "key", func(c driver.Conn) error {
			replies, err := c.Pipeline(t.Context(), []any{"PING"}, []any{"GET", "key"}, []any{"PING"})
			if err != nil || len(replies) != 3 || replies[0] != "PONG" || replies[2] != "PONG" || !same(replies[1], nil, want) {
				t.Errorf("Pipeline with %q = %#v, %v", sent, replies, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// same compares a reply, or the error in its place, with what the server meant.
func same(got any, err error, want any) bool {
	if text, isError := want.(wire.Error); isError {
		if err == nil {
			err, _ = got.(error)
		}
		reply := (*redisstore.ReplyError)(nil)
		return errors.As(err, &reply) && reply.Text == string(text)
	}
	return err == nil && reflect.DeepEqual(got, inFamily(want))
}

// inFamily has the errors inside of lists as the family has them.
func inFamily(reply any) any {
	switch reply := reply.(type) {
	case wire.Error:
		return &redisstore.ReplyError{Text: string(reply)}
	case []any:
		all := make([]any, len(reply))
		for i := range reply {
			all[i] = inFamily(reply[i])
		}
		return all
	}
	return reply
}
