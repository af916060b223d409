package redisstore

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
)

var (
	//go:embed scripts/grant.lua
	grantSource string
	//go:embed scripts/acquire.lua
	acquireSource string
	//go:embed scripts/extend.lua
	extendSource string
	//go:embed scripts/release.lua
	releaseSource string

	//go:embed scripts/queue.lua
	queueSource string
	//go:embed scripts/enqueue.lua
	enqueueSource string
	//go:embed scripts/free.lua
	freeSource string
	//go:embed scripts/pass.lua
	passSource string
	//go:embed scripts/quit.lua
	quitSource string

	//go:embed scripts/counter.lua
	counterSource string
	//go:embed scripts/draw.lua
	drawSource string
	//go:embed scripts/unnumbered.lua
	unnumberedSource string
	//go:embed scripts/number.lua
	numberSource string
	//go:embed scripts/raise.lua
	raiseSource string

	//go:embed scripts/holds.lua
	holdsSource string
	//go:embed scripts/enter.lua
	enterSource string
	//go:embed scripts/renew.lua
	renewSource string
	//go:embed scripts/leave.lua
	leaveSource string

	acquireScript = newScript(1, grantSource+acquireSource)
	extendScript  = newScript(1, extendSource)
	releaseScript = newScript(1, releaseSource)

	enqueueScript  = newScript(2, queueSource+grantSource+unnumberedSource+enqueueSource)
	numberedScript = newScript(3, queueSource+grantSource+counterSource+drawSource+enqueueSource)
	passScript     = newScript(2, freeSource+queueSource+passSource)
	quitScript     = newScript(2, queueSource+quitSource)

	numberScript = newScript(2, counterSource+grantSource+drawSource+numberSource)
	raiseScript  = newScript(2, counterSource+raiseSource)

	enterScript = newScript(1, holdsSource+enterSource)
	renewScript = newScript(1, holdsSource+renewSource)
	leaveScript = newScript(1, holdsSource+leaveSource)
)

// script is a Lua script on so many keys. It is sent by its digest, and in full to a server that does not know it.
type script struct{ source, digest, keys any } // strings and a number, boxed once

func newScript(keys int, source string) script {
	sum := sha1.Sum([]byte(source)) // what Redis names scripts by, not a matter of security
	return script{source: source, digest: hex.EncodeToString(sum[:]), keys: keys}
}

// call is how a command is sent: Executor.Do or Executor.Once.
type call func(ctx context.Context, args ...any) (any, error)

// run takes the keys and then the arguments.
func (s script) run(ctx context.Context, send call, args ...any) (any, error) {
	reply, err := send(ctx, s.command("EVALSHA", s.digest, args)...)
	if unknown(err) {
		return send(ctx, s.command("EVAL", s.source, args)...)
	}
	return reply, err
}

// unknown tells that the server does not know the digest.
func unknown(err error) bool {
	reply, ok := errors.AsType[*ReplyError](err)
	return ok && reply.Code() == "NOSCRIPT"
}

func (s script) command(name string, which any, args []any) []any {
	command := make([]any, 3, 3+len(args))
	command[0], command[1], command[2] = name, which, s.keys
	return append(command, args...)
}
