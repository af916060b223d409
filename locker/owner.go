package locker

import "context"

type ownerKey struct{}

// ContextWithOwner names the owner of locks taken under this context. Strategies that know owners
// (reentrant) grant a lock again to the owner that has it. An owner is always explicit: a goroutine
// or a process is none by itself. It is a name, not a secret.
func ContextWithOwner(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

func ownerFrom(ctx context.Context) string {
	owner, _ := ctx.Value(ownerKey{}).(string)
	return owner
}
