package trial

import (
	"context"
	"testing"
	"time"
)

const patience = 2 * time.Minute

// Patient is for a call for people on a real server, such as Check or Install. Without a deadline it gives up
// after 10 s; a busy machine or a slow disk may need more.
func Patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
