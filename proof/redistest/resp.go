package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// An Error is an error reply, such as "NOSCRIPT No matching script".
type Error string

// Error returns the text of the reply, code first.
func (e Error) Error() string { return string(e) }

// isReply reports whether a call got an answer, if only an error reply.
func isReply(err error) bool {
	_, ok := errors.AsType[Error](err)
	return err == nil || ok
}

// encode returns a command in the form all clients send, an array of bulk strings.
func encode(args []string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b
}

// A decoder reads RESP2 and RESP3 values and keeps their exact bytes, so that the
// proxy can both understand and forward them.
type decoder struct {
	r   *bufio.Reader
	raw []byte // of the value that next returned
}

func newDecoder(r io.Reader) *decoder { return &decoder{r: bufio.NewReader(r)} }

// next reads one value, and also returns its type byte. Aggregates are []any; a map is a list of
// keys and values in turn. Numbers that are not integers stay text. Attributes belong to the value
// after them.
func (d *decoder) next() (kind byte, v any, err error) {
	d.raw = d.raw[:0]
	return d.value()
}

func (d *decoder) value() (kind byte, v any, err error) {
	line, err := d.line()
	if err != nil {
		return 0, nil, err
	}
	kind, text := line[0], line[1:]
	switch kind {
	case '\n': // a master sends bare newlines to a replica that waits for its data
	case '+', ',', '(':
		v = text
	case '-':
		v = Error(text)
	case '_':
	case '#':
		v = text == "t"
	case ':':
		v, err = integer(text)
	case '$', '=':
		v, err = d.bulk(text)
	case '!':
		if v, err = d.bulk(text); err == nil {
			v = Error(fmt.Sprint(v))
		}
	case '*', '~', '>':
		v, err = d.elements(text, 1)
	case '%':
		v, err = d.elements(text, 2)
	case '|':
		if _, err = d.elements(text, 2); err == nil {
			return d.value()
		}
	default:
		err = protocolError(line)
	}
	return kind, v, err
}

// line reads up to CRLF, which it cuts off, and returns at least one byte.
func (d *decoder) line() (string, error) {
	b, err := d.r.ReadBytes('\n')
	d.raw = append(d.raw, b...)
	switch line, ok := strings.CutSuffix(string(b), "\r\n"); {
	case err != nil:
		return "", err
	case ok && line != "":
		return line, nil
	case string(b) == "\n":
		return "\n", nil
	default:
		return "", protocolError(b)
	}
}

func (d *decoder) bulk(length string) (any, error) {
	n, err := integer(length)
	if err != nil || n < 0 {
		return nil, err
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(d.r, b); err != nil {
		return nil, err
	}
	d.raw = append(d.raw, b...)
	return string(b[:n]), nil
}

func (d *decoder) elements(length string, perEntry int64) (any, error) {
	n, err := integer(length)
	if err != nil || n < 0 {
		return nil, err
	}
	elements := []any{}
	for range n * perEntry {
		_, v, err := d.value()
		if err != nil {
			return nil, err
		}
		elements = append(elements, v)
	}
	return elements, nil
}

func integer(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, protocolError(text)
	}
	return n, nil
}

// A protocolError is text that is not RESP. It is a bug of the test or of this package, never a
// fault of the network.
type protocolError string

func (e protocolError) Error() string { return fmt.Sprintf("not RESP: %.80q", string(e)) }
