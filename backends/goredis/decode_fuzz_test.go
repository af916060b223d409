package goredis

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/verify/differential/wire"
	client "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// FuzzDecoding: whatever a server replies, go-redis and the executor hand it on in the terms of the family: alone, sent once, and
// within a pipeline, where the replies stay in order.
func FuzzDecoding(f *testing.F) {
	for _, seed := range []string{"", "\x00", "\x1aOKAY", "\x13OK", "\x44NOPERM no", "\x05\x7f\xff\xff\xff\xff\xff\xff\xff", "\x26", "\x17\x26\x0ax", "\x1f\x24no\x17\x01\x26\x0ax", "\x07"} {
		f.Add([]byte(seed))
	}
	var sent string // by the server, in answer to GET
	c := client.NewClient(&client.Options{
		Addr: "127.0.0.1:1", Protocol: 2, DisableIdentity: true, MaxRetries: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go wire.Serve(theirs, func(command []string) string {
				switch strings.ToUpper(command[0]) {
				case "GET":
					return sent
				case "PING":
					return "+PONG\r\n"
				}
				return "-ERR unknown command\r\n" // HELLO
			})
			return ours, nil
		},
	})
	f.Cleanup(func() { c.Close() })
	e := newExecutor(c)
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
	return err == nil && reflect.DeepEqual(plain(got), plain(want))
}

// plain is a reply with the errors inside of lists, which may be of any type, as texts.
func plain(reply any) any {
	list, isList := reply.([]any)
	if !isList {
		return reply
	}
	all := make([]any, len(list))
	for i, element := range list {
		switch element := element.(type) {
		case wire.Error:
			all[i] = "-" + string(element)
		case error:
			all[i] = "-" + element.Error()
		default:
			all[i] = plain(element)
		}
	}
	return all
}
