package drivertest

import (
	"context"
	"net"
	"reflect"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/proof/wire"
)

// FuzzDecoding checks that the adapter hands on every reply of a server in the terms of the family:
// alone, sent once, and within a pipeline, where the replies stay in order.
func FuzzDecoding(f *testing.F, h Harness) {
	for _, seed := range []string{"", "\x00", "\x1aOKAY", "\x13OK", "\x44NOPERM no", "\x05\x7f\xff\xff\xff\xff\xff\xff\xff", "\x26", "\x17\x26\x0ax", "\x1f\x24no\x17\x01\x26\x0ax", "\x07"} {
		f.Add([]byte(seed))
	}
	var sent string // by the server, in answer to GET
	answer := func(command []string) string {
		switch name := strings.ToUpper(command[0]); {
		case name == "GET":
			return sent
		case name == "HELLO" && command[1] == "3":
			return "%1\r\n$5\r\nproto\r\n:3\r\n"
		case name == "HELLO":
			return "-ERR unknown command\r\n"
		}
		return "+PONG\r\n"
	}
	e := h.Connect(f, Server{Addr: "127.0.0.1:1", Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go wire.Serve(theirs, answer)
		return ours, nil
	}}).Executor
	f.Fuzz(func(t *testing.T, data []byte) {
		var want any
		sent, want = wire.Draw(data)
		for name, call := range map[string]func(ctx context.Context, args ...any) (any, error){"Do": e.Do, "Once": e.Once} {
			if got, err := call(t.Context(), "GET", "key"); !same(got, err, want) {
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
		reply, isReply := err.(*driver.ReplyError) //nolint:errorlint // it is not wrapped
		return isReply && reply.Text == string(text)
	}
	return err == nil && reflect.DeepEqual(texts(got), meant(want))
}

// meant is a reply with the errors inside of lists as texts has them.
func meant(reply any) any {
	switch reply := reply.(type) {
	case wire.Error:
		return errorText(reply)
	case []any:
		all := make([]any, len(reply))
		for i := range reply {
			all[i] = meant(reply[i])
		}
		return all
	}
	return reply
}
