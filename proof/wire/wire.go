// Package wire turns any bytes into replies of a Redis server, as they are on the wire and as a
// client should read them, for fuzz tests of client libraries.
package wire

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// An Error is an error reply.
type Error string

// Draw turns data into a reply: as it is sent, and as nil, an int64, a string, an Error or a []any
// of those.
func Draw(data []byte) (sent string, reply any) {
	d := drawing(data)
	return d.reply(0)
}

type drawing []byte

func (d *drawing) take(n int) string {
	n = min(n, len(*d))
	taken := string((*d)[:n])
	*d = (*d)[n:]
	return taken
}

func (d *drawing) reply(depth int) (sent string, reply any) {
	kind := d.take(1)
	if kind == "" {
		return "$-1\r\n", nil
	}
	size := int(kind[0] / 8)
	switch kind[0] % 8 {
	case 0:
		return "*-1\r\n", nil
	case 1:
		return "$-1\r\n", nil
	case 2:
		text := d.take(size)
		return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text), text
	case 3:
		text := line(d.take(size))
		return "+" + text + "\r\n", text
	case 4:
		text := "ERR " + line(d.take(size))
		return "-" + text + "\r\n", Error(text)
	case 5:
		n, _ := strconv.ParseInt(fmt.Sprintf("%x", d.take(8)), 16, 64)
		if size%2 == 1 {
			n = -n
		}
		return fmt.Sprintf(":%d\r\n", n), n
	case 6:
		n := int64(size) - 3
		return fmt.Sprintf(":%d\r\n", n), n
	}
	list := make([]any, min(size%5, 3-depth))
	sent = fmt.Sprintf("*%d\r\n", len(list))
	for i := range list {
		part, element := d.reply(depth + 1)
		list[i], sent = element, sent+part
	}
	return sent, list
}

// line removes line breaks.
func line(text string) string { return strings.NewReplacer("\r", "", "\n", "").Replace(text) }

// Serve answers each command on c with answer(command), until c is closed.
func Serve(c net.Conn, answer func(command []string) string) {
	defer c.Close() //nolint:errcheck // nothing is written after that
	r := bufio.NewReader(c)
	for {
		command, err := read(r)
		if err != nil {
			return
		}
		if _, err := io.WriteString(c, answer(command)); err != nil {
			return
		}
	}
}

func read(r *bufio.Reader) (command []string, err error) {
	var n int
	if _, err = fmt.Fscanf(r, "*%d\r\n", &n); err != nil {
		return nil, err
	}
	for range n {
		var size int
		if _, err = fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
			return nil, err
		}
		arg := make([]byte, size+2)
		if _, err = io.ReadFull(r, arg); err != nil {
			return nil, err
		}
		command = append(command, string(arg[:size]))
	}
	return command, nil
}
