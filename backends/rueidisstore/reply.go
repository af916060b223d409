package rueidisstore

import (
	"strconv"
	"strings"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	client "github.com/redis/rueidis"
)

// decode puts a reply into the terms of the family. An error reply is a *redisstore.ReplyError;
// other errors are those of rueidis.
func decode(result client.RedisResult) (any, error) {
	if err := result.NonRedisError(); err != nil {
		return nil, err
	}
	message, _ := result.ToMessage() // its error is in the message
	value := valueOf(&message)
	if refused, ok := value.(*driver.ReplyError); ok {
		return nil, refused
	}
	return value, nil
}

// valueOf reads what RESP3 has besides as RESP2 would have sent it: a map as a list, a truth as a
// number, other numbers as strings.
func valueOf(m *client.RedisMessage) any {
	switch {
	case m.IsString():
		value, _ := m.ToString()
		return value
	case m.IsInt64():
		value, _ := m.ToInt64()
		return value
	case m.IsNil():
		return nil
	case m.IsArray():
		elements, _ := m.ToArray()
		list := make([]any, len(elements))
		for i := range elements {
			list[i] = valueOf(&elements[i])
		}
		return list
	case m.IsMap():
		entries, _ := m.ToMap()
		list := make([]any, 0, 2*len(entries))
		for name, entry := range entries {
			list = append(list, name, valueOf(&entry))
		}
		return list
	case m.IsBool():
		if on, _ := m.ToBool(); on {
			return int64(1)
		}
		return int64(0)
	case m.IsFloat64():
		value, _ := m.ToFloat64()
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	if err := m.Error(); err != nil {
		return &driver.ReplyError{Text: code(m, err.Error()) + err.Error()}
	}
	value, _ := m.ToString()
	if len(value) > 3 && value[3] == ':' { // a verbatim string, which begins with its format; otherwise a big number
		value = value[4:]
	}
	return value
}

var overhead = new(client.RedisMessage).CacheSize()

// code is the ERR that rueidis takes away from what stood after it.
func code(m *client.RedisMessage, rest string) string {
	if m.CacheSize()-overhead > len(rest) {
		return "ERR "
	}
	return ""
}

// opening is the error reply to HELLO, AUTH or SELECT, with the ERR that rueidis has taken away
// without a trace.
func opening(text string) string {
	for _, first := range []string{"AUTH ", "Client ", "DB ", "SELECT ", "invalid ", "max ", "unknown ", "wrong "} {
		if strings.HasPrefix(text, first) {
			return "ERR " + text
		}
	}
	return text
}
