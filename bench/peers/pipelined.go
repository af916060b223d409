package main

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// pipelined sends 64 SETs in one round trip, and 64 releases in the next. No lock library can reach
// it, since none knows beforehand which locks will be wanted.
var pipelined = contender{"go-redis, pipelines of 64", reference,
	"redis.NewClient(Addr): 64 × SET NX PX in a pipeline, then 64 × EVALSHA", openPipelined}

func openPipelined(p place) (*locks, error) {
	c := p.goredis(0)
	digest := sha1.Sum([]byte(releaseLua))
	sha := hex.EncodeToString(digest[:])
	if err := c.ScriptLoad(context.Background(), releaseLua).Err(); err != nil {
		return nil, err
	}
	return &locks{
		pairs: func(ctx context.Context, n int) error {
			key := func(i int) string { return "bench:pipelined:" + strconv.Itoa(i) }
			_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i := range n {
					p.SetNX(ctx, key(i), token, ttl)
				}
				return nil
			})
			if err != nil {
				return err
			}
			_, err = c.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i := range n {
					p.EvalSha(ctx, sha, []string{key(i)}, token)
				}
				return nil
			})
			return err
		},
		close: func() { _ = c.Close() },
	}, nil
}
