package natsstore_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// A server tells 100,000 subjects in one answer. This one tells two.
func TestListReadsFurtherAnswers(t *testing.T) {
	conn := dial(t, run(t, func(o *server.Options) { o.JetStream = false }).ClientURL())
	answer := func(api string, of func(request map[string]any) any) {
		t.Helper()
		_, err := conn.Subscribe("$JS.API."+api+".LOCKSTEP", func(m *nats.Msg) {
			var request map[string]any
			if err := json.Unmarshal(m.Data, &request); err != nil {
				t.Error(err)
			}
			data, err := json.Marshal(of(request))
			if err != nil {
				t.Error(err)
			}
			_ = m.Respond(data)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	const keys = 5
	answer("STREAM.INFO", func(request map[string]any) any {
		subjects := map[string]int{}
		offset := int(request["offset"].(float64))
		for i := offset; i < min(offset+2, keys); i++ {
			subjects[fmt.Sprint("lockstep.lock.k", i)] = 1
		}
		return map[string]any{"ts": time.Now(), "total": keys, "state": map[string]any{"subjects": subjects}}
	})
	answer("STREAM.MSG.GET", func(map[string]any) any {
		return map[string]any{"message": map[string]any{"seq": 1, "data": []byte("=by an operator"), "time": time.Now()}}
	})
	page, err := natsstore.New(conn).List(trial.Patient(t), "k", "", backends.MaxPage)
	if err != nil || len(page.Keys) != keys || page.Next != "" {
		t.Errorf("List = %+v, %v; want %d keys", page, err, keys)
	}
}

// Subjects that no store writes are passed over, and keys that need escapes are told as they are.
func TestListTellsKeysAndNoSubjects(t *testing.T) {
	conn := install(t)
	store, o := natsstore.New(conn), newOutside(t, conn)
	for _, word := range []string{"not%an%escape", "%61", "%zz"} {
		if _, err := o.js.Publish(t.Context(), "lockstep.lock."+word, []byte("=x")); err != nil {
			t.Fatal(err)
		}
	}
	want := "a.b c*"
	for _, key := range []string{want, "a\x00b"} {
		grant(t, store, key, "token", 20*time.Second)
	}
	page, err := store.List(trial.Patient(t), "", "", 10)
	if err != nil || len(page.Keys) != 1 || page.Keys[0].Key != want {
		t.Errorf("List = %+v, %v; want %q alone", page, err, want)
	}
}

// What closes a key comes after each renewal that has succeeded, and lasts as long as it.
func TestEvictMeetsRenewals(t *testing.T) {
	conn := install(t)
	store, o := natsstore.New(conn), newOutside(t, conn)
	const ttl = 5 * time.Second
	for round := range 20 {
		key, token := fmt.Sprint("k", round), rand.Text()
		granted := time.Now()
		grant(t, store, key, token, ttl)
		state, err := store.Inspect(trial.Patient(t), key)
		if err != nil {
			t.Fatal(err)
		}
		last := make(chan time.Time, 1)
		go func() {
			began := granted
			for range round { // Evict tries more often
				at := time.Now()
				if ok, err := store.ExpireIf(t.Context(), key, token, ttl); err != nil || !ok {
					break
				}
				began = at
			}
			last <- began
		}()
		if ok, err := natsstore.New(conn).Evict(trial.Patient(t), key, state.Holds[0].Print, backends.Eviction{}); err != nil || !ok {
			t.Fatalf("Evict = %v, %v", ok, err)
		}
		until := (<-last).Add(ttl)
		if _, left, ok := o.Get(key); time.Now().Add(left).Before(until) || !ok {
			t.Errorf("the key opens in %v; its holder may work for %v more", left, time.Until(until))
		}
	}
}
