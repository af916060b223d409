package redisstore

import (
	"testing"
	"time"
)

func TestAStoreOverANilExecutorAnswersEveryCallWithAnError(t *testing.T) {
	s := New(nil)
	_, set := s.SetNX(t.Context(), "key", "token", time.Second)
	_, expire := s.ExpireIf(t.Context(), "key", "token", time.Second)
	_, remove := s.DeleteIf(t.Context(), "key", "token")
	watch := s.Watch(t.Context(), "key", func() {})
	for _, err := range []error{set, expire, remove, watch} {
		if err == nil || err.Error() != "client is nil" {
			t.Errorf("error %v; want that the client is nil", err)
		}
	}
}
