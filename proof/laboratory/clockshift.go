package laboratory

import (
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// The clock of an actor is put ahead where it meets the world: in what the actor sends and in what it is told, every absolute
// time is moved. To anyone else this is the same as a clock that is ahead, and it needs no consent of the strategy. One that
// sends no time of its own has nothing that could be moved.

func shiftArguments(cmd redis.Cmder, by time.Duration) {
	args := cmd.Args()
	for i := range args {
		if text, ok := args[i].(string); ok && by != 0 && i > 0 {
			args[i] = shift(text, by)
		}
	}
}

func shiftReply(cmd redis.Cmder, by time.Duration) {
	reply, ok := cmd.(interface {
		Val() any
		SetVal(any)
	})
	if !ok || by == 0 {
		return
	}
	if text, ok := reply.Val().(string); ok {
		reply.SetVal(shift(text, by))
	}
}

// shift moves what can only be a time: a number of seconds, milliseconds or microseconds within a year of now.
func shift(text string, by time.Duration) string {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return text
	}
	const year = 365 * 24 * time.Hour
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if n > time.Now().Add(-year).UnixNano()/int64(unit) && n < time.Now().Add(year).UnixNano()/int64(unit) {
			return strconv.FormatInt(n+int64(by/unit), 10)
		}
	}
	return text
}
