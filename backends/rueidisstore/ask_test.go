package rueidisstore

import (
	"errors"
	"net"
	"testing"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	client "github.com/redis/rueidis"
)

// A reply that stays unread comes before that to the first command of rueidis, which panics.
func TestNoReplyStaysUnreadBehindAnError(t *testing.T) {
	for name, c := range map[string]struct {
		password string
		replies  []string
		want     string // empty: the replies of both sections
	}{
		"both are told":       {"", []string{"$3\r\na:1\r\n", "$3\r\nb:2\r\n"}, ""},
		"with a password":     {"secret", []string{"+OK\r\n", "$3\r\na:1\r\n", "$3\r\nb:2\r\n"}, ""},
		"the first is not":    {"", []string{"-NOPERM no\r\n", "-NOPERM nor this\r\n"}, "NOPERM no"},
		"the second is not":   {"", []string{"$3\r\na:1\r\n", "-ERR section\r\n"}, "ERR section"},
		"the password is bad": {"secret", []string{"-WRONGPASS bad\r\n", "-NOAUTH first\r\n", "-NOAUTH second\r\n"}, "WRONGPASS bad"},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			written := make(chan error, 1)
			go func() {
				if _, err := theirs.Read(make([]byte, 1024)); err != nil { // the question is one write
					written <- err
					return
				}
				var failed error
				for _, reply := range c.replies { // each waits until it is read
					if _, err := theirs.Write([]byte(reply)); err != nil {
						failed = err
					}
				}
				written <- failed
			}()
			info, err := ask(ours, client.ClientOption{Password: c.password})
			_ = ours.Close()
			if failed := <-written; failed != nil {
				t.Errorf("a reply was not read: %v", failed)
			}
			reply := (*redisstore.ReplyError)(nil)
			if c.want == "" && (err != nil || info != "a:1b:2") || c.want != "" && (!errors.As(err, &reply) || reply.Text != c.want) {
				t.Errorf("ask = %q, %v; want %q", info, err, c.want)
			}
		})
	}
}
