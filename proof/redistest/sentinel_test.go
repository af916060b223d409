package redistest

import "testing"

func TestSentinelsAgreeOnANewMasterAndEndWithTheTest(t *testing.T) {
	t.Parallel()
	var s *Sentinel
	t.Run("while they run", func(t *testing.T) {
		s = StartSentinel(t, 2)
		first := s.Master()
		if first != s.Servers()[0] || len(s.Replicas()) != 2 || len(s.Addrs()) != 3 {
			t.Errorf("master %s, %d replicas, sentinels %v", first.Addr(), len(s.Replicas()), s.Addrs())
		}
		want(t, first, "OK", "SET", "key", "v")
		for _, r := range s.Replicas() {
			await(t, "the value is replicated", func() bool {
				reply, err := r.Do("GET", "key")
				return err == nil && reply == "v"
			})
		}
		s.sentinels[0].Kill() // two are enough
		if dead := s.KillMaster(); dead != first {
			t.Errorf("killed %s", dead.Addr())
		}
		second := s.AwaitFailover(first)
		if second == first || s.Master() != second {
			t.Errorf("master %s after %s", second.Addr(), first.Addr())
		}
		want(t, second, "v", "GET", "key")
		want(t, second, "OK", "SET", "key", "w")
		first.Restart()
		await(t, "the old master follows the new one", func() bool { return !first.IsMaster() && following(first) })
		want(t, first, "w", "GET", "key")
		s.sentinels[0].Restart()
		await(t, "the sentinel that was away agrees", func() bool { return s.agreed() == second })
	})
	for _, server := range append(s.Servers(), s.sentinels...) {
		if !refuses(server.Addr()) {
			t.Errorf("%s is still there", server.Addr())
		}
	}
}

func TestAReplicaThatIsCutOffHearsNothing(t *testing.T) {
	t.Parallel()
	s := StartSentinel(t, 2)
	cut, other := s.Replicas()[0], s.Replicas()[1]
	cut.CutReplication()
	want(t, s.Master(), "OK", "SET", "key", "v")
	await(t, "the other replica has it", func() bool {
		reply, err := other.Do("GET", "key")
		return err == nil && reply == "v"
	})
	want(t, cut, nil, "GET", "key")
	cut.MendReplication()
	await(t, "it has caught up", func() bool {
		reply, err := cut.Do("GET", "key")
		return err == nil && reply == "v"
	})
}

func TestTheReplicaThatIsPreferredIsPromotedAndTheDeadComesBackAsAnother(t *testing.T) {
	t.Parallel()
	s := StartSentinel(t, 2)
	preferred := s.Replicas()[1]
	s.Prefer(preferred)
	preferred.CutReplication() // so that another one is ahead
	dead := s.KillMaster()
	if m := s.AwaitFailover(dead); m != preferred {
		t.Errorf("%s took over; want %s", m.Addr(), preferred.Addr())
	}
	preferred.MendReplication()
	dead.Restart()
	s.AwaitReplicas()
	want(t, preferred, "OK", "SET", "key", "v")
	for _, r := range s.Replicas() {
		if r.IsMaster() {
			t.Errorf("%s is a master besides", r.Addr())
		}
		await(t, "the value is replicated", func() bool {
			reply, err := r.Do("GET", "key")
			return err == nil && reply == "v"
		})
	}
}
