package redisstore_test

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	client "github.com/redis/go-redis/v9"
)

func permanent(err error) bool {
	p, ok := errors.AsType[interface {
		error
		Permanent() bool
	}](err)
	return ok && p.Permanent()
}

func TestListNeedsAPrefixAndAPlace(t *testing.T) {
	c := dial(t, &client.Options{Addr: startEmbedded(t)})
	plain, prefixed := goredis.New(c), goredis.New(c, redisstore.WithPrefix("app:"))
	if page, err := plain.List(trial.Patient(t), "", "", 10); !permanent(err) {
		t.Errorf("List without a prefix = %+v, %v", page, err)
	}
	if _, err := prefixed.List(trial.Patient(t), "", "", 10); err != nil {
		t.Errorf("List of a store with a prefix: %v", err)
	}
	for _, after := range []string{"0", "0-16383", "0-16383:", "0-16383:-1", "-1-5:0", "5-4:0", "0-16384:0", "0-16383:x", "x"} {
		if page, err := plain.List(trial.Patient(t), "a", after, 10); !permanent(err) {
			t.Errorf("List after %q = %+v, %v", after, page, err)
		}
	}
	scriptless := goredis.New(c, redisstore.WithoutScripts())
	if _, err := scriptless.List(trial.Patient(t), "a", "", 10); !permanent(err) {
		t.Errorf("List without scripts: %v", err)
	}
	if _, err := scriptless.Evict(trial.Patient(t), "a", "print", backends.Eviction{}); !permanent(err) {
		t.Errorf("Evict without scripts: %v", err)
	}
}

func TestNothingButAHoldIsEvicted(t *testing.T) {
	c := dial(t, &client.Options{Addr: redistest.Start(t).Addr()})
	s := goredis.New(c)
	for _, args := range [][]any{
		{"SET", "reserved", "lockstep:reserved:waiter@channel", "PX", 60_000},
		{"ZADD", "foreign", "7", "member"}, {"PEXPIRE", "foreign", 60_000},
		{"ZADD", "forever", time.Now().Add(time.Minute).UnixMilli(), "token"},
		{"ZADD", "group", time.Now().Add(time.Minute).UnixMilli(), "token", "inf", "\x00group:readers"}, {"PEXPIRE", "group", 60_000},
	} {
		if err := c.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for key, value := range map[string]string{
		"reserved": "lockstep:reserved:waiter@channel", "foreign": "member", "forever": "token", "group": "\x00group:readers",
	} {
		sum := sha1.Sum([]byte(value))
		before := c.Dump(t.Context(), key).Val()
		for _, now := range []bool{false, true} {
			ok, err := s.Evict(trial.Patient(t), key, hex.EncodeToString(sum[:8]), backends.Eviction{Now: now, Foreign: true})
			if foreign := key[0] == 'f'; ok || foreign != errors.Is(err, backends.ErrForeign) || foreign != permanent(err) {
				t.Errorf("Evict of %s = %v, %v", key, ok, err)
			}
		}
		if after := c.Dump(t.Context(), key).Val(); after != before || after == "" {
			t.Errorf("%s was %q, and is %q", key, before, after)
		}
	}
}
