package etcd

import (
	"context"
	"testing"
)

// A false "not done" would be a second holder, so all requests count, and those that are under way.
func TestACallIsNotDoneIfNoneOfItsRequestsWasSent(t *testing.T) {
	const begin, sent, failed = "begin", "sent", "unsent"
	for _, tt := range []struct {
		steps []string
		want  bool
	}{
		{nil, false}, // no request was seen: that is so over a client of the application
		{[]string{begin}, false},
		{[]string{begin, sent}, false},
		{[]string{begin, failed}, true},
		{[]string{begin, sent, begin, failed}, false},
		{[]string{begin, failed, begin, sent}, false},
		{[]string{begin, begin, failed}, false}, // an interceptor may send it twice at a time
		{[]string{begin, begin, failed, failed}, true},
	} {
		ctx := withTrace(context.Background())
		for _, step := range tt.steps {
			if step == begin {
				traceOf(ctx).begin()
			} else {
				traceOf(ctx).end(step == sent)
			}
		}
		if got := unsent(ctx); got != tt.want {
			t.Errorf("%v: not done = %v; want %v", tt.steps, got, tt.want)
		}
	}
}
