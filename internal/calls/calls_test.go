package calls

import (
	"context"
	"testing"
	"time"
)

// A node must still be told of a minimum hold, and nothing of the attempt that the Client makes.
func TestWhatANodeIsTold(t *testing.T) {
	type key struct{}
	ended, cancel := context.WithTimeout(t.Context(), time.Hour)
	cancel()
	for name, c := range map[string]struct {
		above context.Context
		want  Notes
	}{
		"nothing is said":           {ended, node},
		"of an attempt of a Client": {context.WithValue(t.Context(), Key{}, new(int)), node},
		"of a release":              {With(t.Context(), Kept), Kept | node},
		"of a node of a quorum":     {ForNode(t.Context()), node},
	} {
		ctx := ForNode(context.WithValue(c.above, key{}, "value"))
		if got := ctx.Value(Key{}); got != c.want || !IsNode(context.WithValue(ctx, key{}, "other")) || ctx.Value(key{}) != "value" {
			t.Errorf("%s: %v; want %v", name, got, c.want)
		}
		if _, ends := ctx.Deadline(); ends || ctx.Done() != nil || ctx.Err() != nil {
			t.Errorf("%s: the call ends with the caller", name)
		}
	}
	if IsNode(t.Context()) || IsNode(With(t.Context(), Kept)) {
		t.Error("a call that no quorum makes is one to a node")
	}
}
