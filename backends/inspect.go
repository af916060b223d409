package backends

import (
	"context"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// An Inspector tells who holds a key. It is for people, and for programs that show or report what
// is going on. Never decide by it who may work: what it says may be over when it is read.
type Inspector interface {
	// Inspect reads what the store has of key at one instant. It changes nothing, wakes nobody, and
	// may be resent. A key that nobody holds is a State without holds, and no error. A key of a type
	// that the store does not write is an error that matches [ErrWrongType].
	Inspect(ctx context.Context, key string) (State, error)
}

// State is what a store has of a key at one instant. It has no token, so nobody can release a lock
// by it.
//
// A waiter in the queue stands for all calls of one Client that wait for the key. One that has died
// is counted until its turn comes.
type State struct {
	Holds    []Hold   // the holds that have not ended, in the order of their ends; [MaxListed] at most
	Holding  int      // how many holds there are
	Group    string   // of the holds, in a [SharedStore]
	Fence    uint64   // the last number that the store gave for the key, as far as it still remembers; 0: none
	Waiters  []string // the labels of the waiters in the queue, from its head; empty for one without; [MaxListed] at most
	Waiting  int      // how many waiters are in the queue
	Reserved int      // how many reservations there are for waiters; they keep others out, and are no holds
	Foreign  bool     // no lease wrote what is under the key: it has no expiry, or it is a sorted set of other software
}

// Hold is one hold of a key.
type Hold struct {
	Holder string        // the label of the holder, see [HolderOf]; empty: it has given none
	Left   time.Duration // until the hold ends, unless it is renewed
	Slot   int           // see [Admission.Slots]; -1: it has none
}

// MaxListed is how many holds, and how many waiters, a [State] lists.
const MaxListed = 100

// HolderOf returns the label in a token, or in the name of a waiter, that was made with
// locker.WithHolder: what stands before the last space, if 26 letters of base32 follow and it is a
// [ValidHolder]. For any other text it is empty. What follows is a secret.
func HolderOf(text string) string {
	i := strings.LastIndexByte(text, ' ')
	if i < 1 || len(text)-i-1 != secretLength || strings.Trim(text[i+1:], "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" || !ValidHolder(text[:i]) {
		return ""
	}
	return text[:i]
}

const secretLength = 26 // of crypto/rand.Text

// ValidHolder reports whether locker.WithHolder takes label. A store whose server cuts the secret
// off checks what comes back: any program may have written the value, and a label goes to logs,
// traces and terminals.
func ValidHolder(label string) bool {
	return label != "" && len(label) <= maxHolderLength && utf8.ValidString(label) && strings.TrimSpace(label) == label &&
		!strings.Contains(label, "@") && !strings.HasPrefix(label, "lockstep:") &&
		!strings.ContainsFunc(label, func(r rune) bool { return !unicode.IsPrint(r) })
}

const maxHolderLength = 100 // locker.MaxHolderLength
