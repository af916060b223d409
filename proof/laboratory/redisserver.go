package laboratory

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	redisProgram = "redis-server"
	startLimit   = 10 * time.Second
)

// redisServer is a process that listens on a socket in the file system, which no other can take, and writes no file.
type redisServer struct {
	socket string
	cmd    *exec.Cmd
}

func startRedis(dir string) (server, func() error, error) {
	name, err := os.MkdirTemp(dir, "")
	if err != nil {
		return nil, nil, err
	}
	_ = os.Getenv("LOCKSTEP_SERVERS") // its version: see redistest.VersionsEnv
	s := &redisServer{socket: name + "/socket"}
	if err := s.start(); err != nil {
		return nil, nil, err
	}
	return s, s.kill, nil
}

func (s *redisServer) Addr() string { return s.socket }

// Restart ends the process with SIGKILL and starts one that knows nothing.
func (s *redisServer) Restart() error {
	if err := s.kill(); err != nil {
		return err
	}
	return s.start()
}

// start returns when the server answers.
func (s *redisServer) start() error {
	s.cmd = exec.Command(redisProgram, "--port", "0", "--unixsocket", s.socket, "--save", "", "--appendonly", "no")
	if err := s.cmd.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: s.socket, MaxRetries: -1})
	defer client.Close()
	for {
		err := client.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", redisProgram, err)
		}
	}
}

func (s *redisServer) kill() error {
	_ = s.cmd.Process.Kill() // fails if it has ended
	_ = s.cmd.Wait()         // it was killed, and that is what this would say
	return os.RemoveAll(s.socket)
}
