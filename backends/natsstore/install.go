package natsstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/printed"
)

// streamConfig is what Install sets of a stream, and what Check looks at.
type streamConfig struct {
	Name        string            `json:"name"`
	Description string            `json:"description,omitempty"`
	Subjects    []string          `json:"subjects"`
	Retention   string            `json:"retention"`
	Storage     string            `json:"storage"`
	Discard     string            `json:"discard"`
	Replicas    int               `json:"num_replicas"`
	MaxMsgs     int64             `json:"max_msgs"`
	MaxBytes    int64             `json:"max_bytes"`
	MaxAge      time.Duration     `json:"max_age"`
	MaxPer      int64             `json:"max_msgs_per_subject"`
	NewPer      bool              `json:"discard_new_per_subject,omitempty"`
	AllowTTL    bool              `json:"allow_msg_ttl"`
	FirstSeq    uint64            `json:"first_seq,omitempty"`
	NoAck       bool              `json:"no_ack,omitempty"`
	DenyDelete  bool              `json:"deny_delete"`
	Sealed      bool              `json:"sealed"`
	MarkerTTL   time.Duration     `json:"subject_delete_marker_ttl,omitempty"`
	PersistMode string            `json:"persist_mode,omitempty"`
	Mirror      *struct{}         `json:"mirror,omitempty"`
	Sources     []struct{}        `json:"sources,omitempty"`
	Transform   *struct{}         `json:"subject_transform,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

// streamInfo is the answer to STREAM.INFO and STREAM.CREATE.
type streamInfo struct {
	Config  streamConfig `json:"config"`
	Created time.Time    `json:"created"`
	Time    time.Time    `json:"ts"` // of the server
	Cluster struct {
		Name     string `json:"name"`
		Leader   string `json:"leader"`
		Replicas []struct {
			Name    string `json:"name"`
			Current bool   `json:"current"`
			Offline bool   `json:"offline"`
			Lag     uint64 `json:"lag"`
		} `json:"replicas"`
	} `json:"cluster"`
	failure
}

// Install makes the stream of the locks with so many replicas: three, or five, in a cluster, and
// one on a server that is alone. Programs may call it at every start, several at once. A stream
// that is there already stays as it is. If it has other settings, Install fails and says which
// ones.
func (s *Store) Install(ctx context.Context, replicas int) error {
	if err := s.install(ctx, replicas); err != nil {
		return fmt.Errorf("lockstep: install: %w", err)
	}
	return nil
}

func (s *Store) install(ctx context.Context, replicas int) error {
	if err := s.ready(ctx, ""); err != nil {
		return err
	}
	if replicas < 1 || replicas > 5 {
		return backends.Invalidf("%d replicas: NATS takes 1 to 5", replicas)
	}
	info, err := s.info(ctx)
	if code(err) == codeNoStream {
		if info, err = s.create(ctx, replicas); code(err) == codeNameInUse { // another program was quicker
			info, err = s.info(ctx)
		}
	}
	if err != nil {
		return err
	}
	wrong := s.wrong(info.Config)
	if has := info.Config.Replicas; has != replicas {
		wrong = append(wrong, fmt.Sprintf("it has %s and not %d", printed.Count(has, "replica"), replicas))
	}
	if len(wrong) > 0 {
		return backends.Invalidf("the stream %s is not fit for locks: %s; change it with nats stream edit, or give the store another one (natsstore.WithStream)",
			s.config.stream, strings.Join(wrong, "; "))
	}
	return nil
}

func (s *Store) create(ctx context.Context, replicas int) (*streamInfo, error) {
	c := streamConfig{
		Name: s.config.stream, Description: "locks of Lockstep", Subjects: []string{s.config.subject + ".lock.*"},
		Retention: "limits", Storage: "file", Discard: "new", Replicas: replicas,
		MaxMsgs: -1, MaxBytes: -1, MaxPer: 1, AllowTTL: true,
		// Numbers go on rising if the stream is deleted and made again. 2^53 comes in the year 2255.
		FirstSeq: uint64(time.Now().UnixMicro()),
	}
	info := new(streamInfo)
	if err := s.api(ctx, "STREAM.CREATE", c, info); err != nil {
		return nil, err
	}
	return info, nil
}

// wrong says why a stream is not fit for locks.
func (s *Store) wrong(c streamConfig) (all []string) {
	is := func(wrong bool, why string, args ...any) {
		if wrong {
			all = append(all, fmt.Sprintf(why, args...))
		}
	}
	lock := s.config.subject + ".lock.*"
	is(!slices.Contains(c.Subjects, lock), "it does not take %s", lock)
	is(!c.AllowTTL, "it has no allow_msg_ttl, so locks would never end (servers before 2.11 have no such setting)")
	is(c.MaxPer != 1, "max_msgs_per_subject is %d and not 1, so a released lock would be held by an earlier message", c.MaxPer)
	is(c.Retention != "limits", "retention is %s and not limits, so a consumer could end locks", c.Retention)
	is(c.NewPer, "discard_new_per_subject is set, so no lock can be renewed: unset it, and leave max_msgs_per_subject at 1")
	is(c.MaxAge > 0, "max_age of %v ends locks and minimum holds that last longer: set it to 0", c.MaxAge)
	is((c.MaxMsgs > 0 || c.MaxBytes > 0) && c.Discard != "new", "discard is %s and not new, so a full stream drops locks that are held", c.Discard)
	is(c.DenyDelete || c.Sealed, "it denies deletion, so a lock can't be released")
	is(c.NoAck, "no_ack is set, so no grant is answered")
	is(c.MarkerTTL > 0, "subject_delete_marker_ttl is set, so a key stays occupied after its lock has ended")
	is(c.PersistMode == "async", "persist_mode is async, so the kill of a server forgets locks")
	is(c.Mirror != nil || len(c.Sources) > 0 || c.Transform != nil, "it copies other streams or transforms subjects")
	return all
}

// Permissions returns the subjects that the user of the connection must be allowed to publish to
// and to subscribe to, and no others. Install needs to publish to $JS.API.STREAM.CREATE.<stream> as
// well.
func (s *Store) Permissions() (publish, subscribe []string) {
	inbox := "_INBOX"
	if s.conn != nil && s.conn.Opts.InboxPrefix != "" {
		inbox = s.conn.Opts.InboxPrefix
	}
	wakes := s.config.subject + ".wake.*"
	publish = []string{s.config.subject + ".lock.*", wakes}
	for _, name := range []string{"STREAM.MSG.GET", "STREAM.MSG.DELETE", "STREAM.INFO"} {
		publish = append(publish, apiSubject(name, s.config.stream))
	}
	return publish, []string{inbox + ".>", wakes}
}
