package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// counters are the work of a server and the commands of the clients of a turn, up to an instant.
type counters struct {
	at       time.Time
	sent     int64 // by clients that count
	executed int64 // by the server, also inside scripts
	cpu      time.Duration
}

// counters reads the counters of the first server.
func (t *turn) counters() (counters, error) {
	c := counters{at: time.Now(), sent: t.sent.Load()}
	info, err := t.admins[0].InfoMap(context.Background(), "all").Result()
	if err != nil {
		return c, err
	}
	if c.executed, err = executedBy(info); err != nil {
		return c, err
	}
	for _, used := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info["CPU"][used], 64)
		if err != nil {
			return c, fmt.Errorf("INFO: %w", err)
		}
		c.cpu += time.Duration(seconds * float64(time.Second))
	}
	return c, nil
}

// executed reads the number of commands that a server has run.
func executed(admin *redis.Client) (int64, error) {
	info, err := admin.InfoMap(context.Background(), "stats").Result()
	if err != nil {
		return 0, err
	}
	return executedBy(info)
}

func executedBy(info map[string]map[string]string) (int64, error) {
	n, err := strconv.ParseInt(info["Stats"]["total_commands_processed"], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("INFO: %w", err)
	}
	return n, nil
}

// since is the difference between two readings, without the command that read them.
func (c counters) since(before counters) counters {
	return counters{sent: c.sent - before.sent, executed: c.executed - before.executed - 1, cpu: c.cpu - before.cpu}
}

// per divides; n may be 0.
func per[N int64 | time.Duration](what N, n int) float64 { return float64(what) / float64(n) }
