package embedded_test

import (
	"bufio"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/embedded"
)

func TestTheServerIsNotKeptWaitingForTheClientToRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := embedded.New()
		defer server.Close()
		c, err := server.Dial(t.Context(), "tcp", "127.0.0.1:1")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for range 1000 { // the bubble would stand still
			if _, err := c.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
				t.Fatal(err)
			}
		}
		replies := bufio.NewReader(c)
		for range 1000 {
			if line, err := replies.ReadString('\n'); err != nil || strings.TrimSpace(line) != "+PONG" {
				t.Fatalf("%q, %v", line, err)
			}
		}
		if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := replies.ReadByte(); err == nil || time.Since(began) != time.Second {
			t.Errorf("Read = %v after %v; want a timeout after a second", err, time.Since(began))
		}
	})
}
