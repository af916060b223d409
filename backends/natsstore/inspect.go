package natsstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/bounded"
)

// Inspect implements [backends.Inspector].
func (s *Store) Inspect(ctx context.Context, key string) (_ backends.State, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	if err := s.ready(ctx, key); err != nil {
		return backends.State{}, err
	}
	found, err := s.last(ctx, key)
	switch {
	case err != nil:
		return backends.State{}, err
	case found == nil:
		return backends.State{Waiting: backends.NotKnown}, nil
	}
	now, err := s.serverTime(ctx)
	if err != nil {
		return backends.State{}, err
	}
	return found.state(now), nil
}

// serverTime asks for the wall clock of the leader, which ends locks.
func (s *Store) serverTime(ctx context.Context) (time.Time, error) {
	info, err := s.info(ctx)
	if err != nil {
		return time.Time{}, err
	}
	return info.Time, nil
}

// left is how long a message that has a TTL still lives at a time of the server.
func (e *entry) left(now time.Time) time.Duration {
	return e.stored.Add(time.Duration(e.ttl) * time.Second).Sub(now)
}

func (e *entry) state(now time.Time) backends.State {
	name, left := backends.PrintOf(e.value), e.left(now)
	switch {
	case e.ttl == 0:
		return backends.State{Foreign: true, Fence: e.number, Print: name, Waiting: backends.NotKnown}
	case left <= 0: // it has ended meanwhile
		return backends.State{Waiting: backends.NotKnown}
	}
	return backends.State{
		Holding: 1, Fence: e.number, Waiting: backends.NotKnown,
		Holds: []backends.Hold{backends.HoldOf(backends.LabelOf(e.value), name, backends.IsToken(e.value), left, -1)},
	}
}

// List implements [backends.Lister]. The pages are in the order of the subjects. Each call reads the
// subjects of all locks, and then one message for each key of the page. Prefix may be empty, since
// the stream has nothing but locks.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) (backends.Page, error) {
	if err := s.ready(ctx, prefix); err != nil {
		return backends.Page{}, err
	}
	if err := backends.ValidateLimit(limit); err != nil {
		return backends.Page{}, backends.AsPermanent(err)
	}
	words, now, err := s.words(ctx)
	if err != nil {
		return backends.Page{}, err
	}
	began := time.Now()
	words = slices.DeleteFunc(words, func(word string) bool {
		key, ok := keyOf(word)
		return !ok || word <= after || !strings.HasPrefix(key, prefix) || strings.Contains(key, "\x00")
	})
	slices.Sort(words)
	var page backends.Page
	if len(words) > limit {
		words = words[:limit]
		page.Next = words[limit-1]
	}
	for _, word := range words {
		key, _ := keyOf(word)
		limited, end := bounded.Context(ctx)
		found, err := s.last(limited, key)
		end(&err)
		switch {
		case errors.Is(err, backends.ErrWrongType), err == nil && found == nil:
			continue
		case err != nil:
			return backends.Page{}, err
		}
		if state := found.state(now.Add(time.Since(began))); state.Holding > 0 || state.Foreign {
			page.Keys = append(page.Keys, backends.KeyState{Key: key, State: state})
		}
	}
	return page, nil
}

// words are what the subjects of all locks end with, as of a time of the server. It tells 100,000
// in one answer. While locks end between two answers, keys may be missing.
func (s *Store) words(ctx context.Context) (all []string, now time.Time, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	prefix := s.config.subject + ".lock."
	for {
		var reply struct {
			Time  time.Time `json:"ts"`
			Total int       `json:"total"`
			State struct {
				Subjects map[string]int `json:"subjects"`
			} `json:"state"`
			failure
		}
		err := notDone(s.api(ctx, "STREAM.INFO", map[string]any{"subjects_filter": prefix + "*", "offset": len(all)}, &reply))
		if err != nil {
			return nil, time.Time{}, err
		}
		for subject := range reply.State.Subjects {
			all = append(all, strings.TrimPrefix(subject, prefix))
		}
		if len(reply.State.Subjects) == 0 || len(all) >= reply.Total {
			return all, reply.Time, nil
		}
	}
}

// Evict implements [backends.Evictor]. The server compares the sequence, which each renewal changes,
// so a renewal comes before what closes the key or fails.
func (s *Store) Evict(ctx context.Context, key, seen string, e backends.Eviction) (_ bool, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	if err := e.Validate(seen); err != nil {
		return false, backends.AsPermanent(err)
	}
	if err := s.ready(ctx, key); err != nil {
		return false, err
	}
	for i := range attempts {
		if err := s.pause(ctx, i); err != nil {
			return false, err
		}
		found, err := s.last(ctx, key)
		switch {
		case err != nil || found == nil || backends.PrintOf(found.value) != seen:
			return false, err
		case !e.Foreign && !backends.IsToken(found.value), found.ttl == 0 && !(e.Foreign && e.Now):
			return false, errForeign
		case e.Now:
			deleted, err := s.remove(ctx, found)
			if deleted {
				s.wake(ctx, key)
			}
			if deleted || err != nil {
				return deleted, err
			}
		default:
			now, err := s.serverTime(ctx)
			if err != nil {
				return false, err
			}
			rest := int64((found.left(now) + time.Second - 1) / time.Second)
			found.ttl = min(max(rest, 1), found.ttl) // it may have ended, and a new leader has another clock
			if _, err = s.publish(ctx, key, e.Value(seen), found); !isConflict(err) {
				return err == nil, err
			}
		}
	}
	return false, s.at(errBusy)
}
