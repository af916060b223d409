package natsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/nats-io/nats.go"
)

// The headers of a message. The first three are those of the server.
const (
	headerTTL      = "Nats-TTL"
	headerExpected = "Nats-Expected-Last-Subject-Sequence"
	headerStream   = "Nats-Expected-Stream"
	headerNumber   = "Lockstep-Number" // the sequence of the first message of a grant
)

// mark is what the data of a lock begins with. A message without it is not ours.
const mark = "="

// requestLimit is how long a request waits for its answer if its ctx lasts longer. A server answers
// nothing to a request for a stream whose leader can't be reached.
const requestLimit = 5 * time.Second

// An entry is the message of a lock.
type entry struct {
	seq    uint64
	number uint64 // of the grant
	ttl    int64  // in seconds; 0: it has no expiry
	value  string
	stored time.Time // by the clock of the server

	connection uint64 // of seq: see grants
}

// locks and wakes are the subjects of a key.
func (s *Store) locks(key string) string { return s.config.subject + ".lock." + escape(key) }
func (s *Store) wakes(key string) string { return s.config.subject + ".wake." + escape(key) }

// escape makes a key one word of a subject, which people can read. What may not be there, and %,
// becomes % and two hexadecimal digits, as in a URL. The empty key is % alone.
func escape(key string) string {
	if key == "" {
		return "%"
	}
	var b strings.Builder
	for i := range len(key) {
		switch c := key[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', strings.IndexByte("-_:/@=+,~", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// keyOf is the key that escape has made a word of. It is not ok for a word that no store writes.
func keyOf(word string) (key string, ok bool) {
	if word == "%" {
		return "", true
	}
	key, err := url.PathUnescape(word)
	return key, err == nil && escape(key) == word
}

// publish stores value with the TTL of e, if the sequence of the last message is that of e. It does
// not set Nats-Msg-Id: the server would acknowledge a duplicate of a message that was deleted
// since.
func (s *Store) publish(ctx context.Context, key, value string, e *entry) (seq uint64, err error) {
	m := nats.NewMsg(s.locks(key))
	m.Data = []byte(mark + value)
	m.Header[headerTTL] = []string{strconv.FormatInt(e.ttl, 10) + "s"}
	m.Header[headerExpected] = []string{strconv.FormatUint(e.seq, 10)}
	m.Header[headerStream] = []string{s.config.stream}
	if e.number != 0 {
		m.Header[headerNumber] = []string{strconv.FormatUint(e.number, 10)}
	}
	var ack struct {
		Seq uint64 `json:"seq"`
		failure
	}
	if err := s.request(ctx, m, &ack); err != nil {
		return 0, err
	}
	return ack.Seq, nil
}

// last reads the last message of a key, or nil, from the leader of the stream. If that fails, the call has
// done nothing: whatever was sent before was refused.
func (s *Store) last(ctx context.Context, key string) (*entry, error) {
	var reply struct {
		Message struct {
			Seq    uint64    `json:"seq"`
			Header []byte    `json:"hdrs"`
			Data   []byte    `json:"data"`
			Time   time.Time `json:"time"`
		} `json:"message"`
		failure
	}
	connection := s.grants.connection()
	err := notDone(s.api(ctx, "STREAM.MSG.GET", map[string]any{"last_by_subj": s.locks(key)}, &reply))
	if code(err) == codeNoMessage {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	value, ours := strings.CutPrefix(string(reply.Message.Data), mark)
	if !ours {
		return nil, errWrongType
	}
	header, err := nats.DecodeHeadersMsg(reply.Message.Header)
	if len(reply.Message.Header) > 0 && err != nil {
		return nil, errWrongType
	}
	e := &entry{seq: reply.Message.Seq, number: reply.Message.Seq, value: value, stored: reply.Message.Time,
		ttl: ttlOf(header.Get(headerTTL)), connection: connection}
	if n, err := strconv.ParseUint(header.Get(headerNumber), 10, 64); err == nil {
		e.number = n
	}
	return e, nil
}

// ttlOf reads the header as the server does: as a duration, whose fraction of a second does not
// count, or as a number of seconds. Any other text means no expiry.
func ttlOf(header string) int64 {
	if d, err := time.ParseDuration(header); err == nil {
		return int64(d.Seconds())
	}
	n, err := strconv.ParseInt(header, 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// remove deletes a message by its sequence. If the connection was made again meanwhile, nothing is sent:
// the message with that sequence may be of another key.
func (s *Store) remove(ctx context.Context, found *entry) (deleted bool, err error) {
	var reply struct {
		Success bool `json:"success"`
		failure
	}
	m, err := apiMessage("STREAM.MSG.DELETE", s.config.stream, map[string]any{"seq": found.seq, "no_erase": true})
	if err != nil {
		return false, err
	}
	err = s.requestIf(ctx, m, &reply, func() bool { return s.grants.connection() == found.connection })
	if errors.Is(err, errMadeAgain) {
		return false, nil
	}
	if isGone(err) {
		return false, nil
	}
	return err == nil && reply.Success, err
}

// info asks for the stream.
func (s *Store) info(ctx context.Context) (*streamInfo, error) {
	info := new(streamInfo)
	if err := notDone(s.api(ctx, "STREAM.INFO", nil, info)); err != nil {
		return nil, err
	}
	return info, nil
}

// api sends a request about the stream.
func (s *Store) api(ctx context.Context, name string, content any, reply answer) error {
	m, err := apiMessage(name, s.config.stream, content)
	if err != nil {
		return err
	}
	return s.request(ctx, m, reply)
}

func apiMessage(name, stream string, content any) (*nats.Msg, error) {
	m := nats.NewMsg(apiSubject(name, stream))
	if content == nil {
		return m, nil
	}
	data, err := json.Marshal(content)
	m.Data = data
	return m, err
}

func apiSubject(name, stream string) string { return "$JS.API." + name + "." + stream }

// An answer embeds a failure.
type answer interface{ failed() *apiError }

type failure struct {
	Error *apiError `json:"error"`
}

func (f failure) failed() *apiError { return f.Error }

// errMadeAgain is the error of a request that was not sent, since it was only for the connection before.
var errMadeAgain = errors.New("the connection was made again")

// request sends a message once, and waits for the answer.
func (s *Store) request(ctx context.Context, m *nats.Msg, reply answer) error {
	return s.requestIf(ctx, m, reply, func() bool { return true })
}

// requestIf sends nothing if still is false, which is asked when the connection takes a message.
func (s *Store) requestIf(ctx context.Context, m *nats.Msg, reply answer, still func() bool) error {
	if err := s.over(ctx); err != nil {
		return err
	}
	w, err := s.via(ctx)
	if err != nil {
		return err
	}
	defer w.end()
	limited, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	began, heard := time.Now(), func() {}
	if w.isFirst {
		heard = s.rests.request()
		defer time.AfterFunc(silence, s.late).Stop()
	}
	if w.isFirst && s.first.stuck.Load() >= maxStuck {
		return &Error{Server: s.Endpoint(), Err: errors.New("the connection takes no more bytes"), class: unsent, next: "look at the server, and at the network to it"}
	}
	var got *nats.Msg
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		got, err = w.send(ctx, limited, m, still)
	}()
	select {
	case <-ended:
	case <-limited.Done():
		select {
		case <-ended:
		case <-time.After(grace):
			return s.leave(s.stuck(ctx, m.Subject), w, began, ended)
		}
	}
	if err != nil {
		switch {
		case limited.Err() == nil || backends.Permanent(err) || backends.Unsent(err):
			return err
		case w.isFirst:
			return s.left(err, began)
		}
		return onTheWay{err, w.over}
	}
	heard()
	if err := json.Unmarshal(got.Data, reply); err != nil {
		return w.error(fmt.Errorf("the answer to %s is not that of JetStream: %w", m.Subject, err))
	}
	if told := reply.failed(); told != nil {
		return w.told(told)
	}
	return nil
}

// send sends a message over a connection, and waits for the answer. If the connection takes no more bytes,
// it may wait for longer than limited.
func (w way) send(ctx, limited context.Context, m *nats.Msg, still func() bool) (*nats.Msg, error) {
	// A message for a connection that is down would be kept, and sent when the ctx has long ended.
	if status := w.conn.Status(); status != nats.CONNECTED {
		return nil, w.notConnected(status)
	}
	if !still() {
		return nil, w.is(errMadeAgain, unsent, "")
	}
	before := w.moment()
	got, err := w.conn.RequestMsgWithContext(limited, m)
	if err != nil {
		return nil, w.explain(ctx, m.Subject, before, err)
	}
	return got, nil
}
