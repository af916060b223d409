package redigo

import (
	"errors"
	"strings"
	"testing"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

var errFull = errors.New("the socket takes no more")

// clogged is a connection that takes no commands, and keeps that to itself afterwards.
type clogged struct{ client.Conn }

func (clogged) Send(string, ...any) error      { return errFull }
func (clogged) Do(string, ...any) (any, error) { return nil, nil }
func (clogged) Err() error                     { return errFull }
func (clogged) Close() error                   { return nil }

func TestWhatTheConnectionDoesNotTakeIsAnError(t *testing.T) {
	e := newExecutor(&client.Pool{Dial: func() (client.Conn, error) { return clogged{}, nil }}, "")
	err := e.Pinned(t.Context(), "a", func(c driver.Conn) error {
		_, err := c.Pipeline(t.Context(), []any{"WATCH", "a"}, []any{"GET", "a"})
		return err
	})
	if !errors.Is(err, errFull) {
		t.Errorf("Pipeline = %v", err)
	}
	s := e.Subscribe(t.Context())
	defer s.Close()
	if err := s.Subscribe("a"); !errors.Is(err, errFull) {
		t.Errorf("Subscribe = %v", err)
	}
}

func TestAPoolThatCannotDialSaysSoToWhoWaits(t *testing.T) {
	err := newExecutor(&client.Pool{}, "").Subscribe(t.Context()).Subscribe("a")
	if err == nil || !strings.Contains(err.Error(), "neither Dial nor DialContext") {
		t.Errorf("Subscribe = %v", err)
	}
}
