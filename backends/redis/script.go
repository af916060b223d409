package redis

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
)

var (
	//go:embed scripts/acquire.lua
	acquireSource string
	//go:embed scripts/extend.lua
	extendSource string
	//go:embed scripts/release.lua
	releaseSource string

	acquireScript = newScript(acquireSource)
	extendScript  = newScript(extendSource)
	releaseScript = newScript(releaseSource)
)

// script is a Lua script on one key. It is sent by its digest, and in full to a server that does not know it.
type script struct{ source, digest any } // strings, boxed once

func newScript(source string) script {
	sum := sha1.Sum([]byte(source)) // what Redis names scripts by, not a matter of security
	return script{source: source, digest: hex.EncodeToString(sum[:])}
}

// call is how a command is sent: Executor.Do or Executor.Once.
type call func(ctx context.Context, args ...any) (any, error)

func (s script) run(ctx context.Context, send call, key, token string, arg any) (any, error) {
	reply, err := send(ctx, "EVALSHA", s.digest, 1, key, token, arg)
	if unknown := (*ReplyError)(nil); errors.As(err, &unknown) && unknown.Code() == "NOSCRIPT" {
		return send(ctx, "EVAL", s.source, 1, key, token, arg)
	}
	return reply, err
}
