package goredis_test

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	client "github.com/redis/go-redis/v9"
)

// A server does nothing else while a script reads a value, so that locks beside large values of other
// software would be lost. What a script has read is in the memory of the Lua interpreter.
func TestACallForPeopleReadsLittleOfALargeValue(t *testing.T) {
	const size = 32 << 20
	server := redistest.Start(t)
	c := dial(t, &client.Options{Addr: server.Addr()})
	s := goredis.New(c)
	do := func(args ...string) any {
		t.Helper()
		reply, err := server.Do(args...)
		if err != nil {
			t.Fatalf("%.20q: %v", args, err)
		}
		return reply
	}
	text := func(expiry ...string) {
		do("DEL", "page")
		do("SETRANGE", "page", strconv.Itoa(size-1), "x")
		for _, ms := range expiry {
			do("PEXPIRE", "page", ms)
		}
	}
	set := func(expiry ...string) {
		do("DEL", "page")
		for i := range 4 {
			member := fmt.Sprint(i, string(make([]byte, size/4)))
			do("ZADD", "page", strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10), member)
		}
		for _, ms := range expiry {
			do("PEXPIRE", "page", ms)
		}
	}
	inspect := func() error {
		state, err := s.Inspect(trial.Patient(t), "page")
		if err == nil && !state.Foreign && (len(state.Holds) != 1 || !state.Holds[0].Foreign) {
			t.Errorf("Inspect = %+v; want a value of other software", state)
		}
		return err
	}
	evict := func() error {
		_, err := s.Evict(trial.Patient(t), "page", "0011223344556677", backends.Eviction{Now: true})
		if errors.Is(err, backends.ErrForeign) {
			err = nil
		}
		return err
	}
	for name, scene := range map[string]struct {
		prepare func(expiry ...string)
		expiry  []string
		call    func() error
	}{
		"Inspect of a text":                         {text, []string{"3600000"}, inspect},
		"Inspect of a text without expiry":          {text, nil, inspect},
		"Evict of a text":                           {text, []string{"3600000"}, evict},
		"Inspect of a sorted set without an expiry": {set, nil, inspect},
		"ListOwn": {text, nil, func() error {
			_, others, err := s.ListOwn(trial.Patient(t), "", backends.MaxPage)
			if err == nil && others != 1 {
				t.Errorf("%d others; want 1", others)
			}
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			scene.prepare(scene.expiry...)
			do("SCRIPT", "FLUSH") // a new interpreter
			if err := scene.call(); err != nil {
				t.Fatal(err)
			}
			info, _ := do("INFO", "memory").(string)
			found := regexp.MustCompile(`used_memory_lua:(\d+)`).FindStringSubmatch(info)
			if found == nil {
				t.Fatal("INFO has no used_memory_lua")
			}
			if read, err := strconv.Atoi(found[1]); err != nil || read > size/8 {
				t.Errorf("the interpreter has %d bytes, %v, after a call for a value of %d", read, err, size)
			}
		})
	}
}

// A large value is named by both of its ends.
func TestALargeValueIsEvictedByItsPrint(t *testing.T) {
	server := redistest.Start(t)
	c := dial(t, &client.Options{Addr: server.Addr()})
	s := goredis.New(c)
	large := strings.Repeat("x", 5000)
	prints := map[string]bool{}
	for _, value := range []string{large, large[1:] + "y", "y" + large[1:]} {
		if err := c.Set(t.Context(), "page", value, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		state, err := s.Inspect(trial.Patient(t), "page")
		if err != nil || len(state.Holds) != 1 {
			t.Fatalf("Inspect = %+v, %v", state, err)
		}
		prints[state.Holds[0].Print] = true
		if err := c.Append(t.Context(), "page", "z").Err(); err != nil {
			t.Fatal(err)
		}
		evict := func(want bool) {
			t.Helper()
			ok, err := s.Evict(trial.Patient(t), "page", state.Holds[0].Print, backends.Eviction{Foreign: true, Now: true})
			if err != nil || ok != want {
				t.Fatalf("Evict = %v, %v; want %v", ok, err, want)
			}
		}
		evict(false)
		if err := c.Set(t.Context(), "page", value, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		evict(true)
	}
	if len(prints) != 3 {
		t.Errorf("three values have %d prints", len(prints))
	}
}
