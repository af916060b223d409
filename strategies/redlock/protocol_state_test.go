package redlock_test

const (
	maxNodes    = 5
	maxAttempts = 3
	maxCounter  = 15
)

// state is packed, so that millions fit:
//
//	node     holder 2 bits, counter 4, and for each attempt: link 5, acquired twice 1
//	attempt  phase 2 bits, m 6, floor 6
type state struct {
	node    [maxNodes]uint32
	attempt [maxAttempts]uint16
}

const nobody = 0 // the holder of a free node; otherwise it is a token

// The phases of an attempt. m is known from raising on. Its floor is the number that its fence must
// exceed.
const (
	isIdle = iota
	isAsking
	isRaising
	isGranted
)

// The link of an attempt and a node is the answer to acquire until the attempt reads it, or one of
// these.
const (
	linkAsked  = 0                 // acquire has not been executed
	linkSent   = maxCounter + iota // a raise is under way
	linkRaised                     // the raise was executed, and the network may repeat it
	linkLanded                     // the answer was m
	linkAhead                      // the answer was more than m
)

func (s *state) holder(n int) int    { return int(s.node[n] & 3) }
func (s *state) counter(n int) int   { return int(s.node[n] >> 2 & 15) }
func (s *state) link(a, n int) int   { return int(s.node[n] >> (6 + 6*a) & 31) }
func (s *state) twice(a, n int) bool { return s.node[n]>>(11+6*a)&1 == 1 }
func (s *state) phase(a int) int     { return int(s.attempt[a] & 3) }
func (s *state) m(a int) int         { return int(s.attempt[a] >> 2 & 63) }
func (s *state) floor(a int) int     { return int(s.attempt[a] >> 8 & 63) }

func (s *state) setNode(n, holder, counter int) {
	s.node[n] = s.node[n]&^63 | uint32(holder|counter<<2)
}
func (s *state) setLink(a, n, link int) { s.node[n] = s.node[n]&^(31<<(6+6*a)) | uint32(link)<<(6+6*a) }
func (s *state) setTwice(a, n int)      { s.node[n] |= 1 << (11 + 6*a) }
func (s *state) setAttempt(a, phase, m, floor int) {
	s.attempt[a] = uint16(phase | m<<2 | floor<<8)
}

// answered reports whether there is an answer to acquire that a has not read.
func (s *state) answered(a, n int) bool {
	return s.link(a, n) != linkAsked && s.link(a, n) <= maxCounter
}
