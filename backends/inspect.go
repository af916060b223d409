package backends

import (
	"context"
	"crypto/sha1" // the name that the stores for Redis give a hold; it protects nothing
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// An Inspector tells who holds a key. It is for people, and for programs that show or report what
// is going on. Never decide by it who may work: what it says may be over when it is read.
//
// No lease ends the calls for people: of an Inspector, a Lister, an Evictor, an [Identifier], and the
// Check of a store. Without a deadline in its ctx, such a call of a store of Lockstep is given up after
// ten seconds. A List that asks for each key has them for each.
type Inspector interface {
	// Inspect reads what the store has of key at one instant. It changes nothing, wakes nobody, and
	// may be resent. A key that nobody holds is a State without holds, and no error. A key of a type
	// that the store does not write is an error that matches [ErrWrongType].
	Inspect(ctx context.Context, key string) (State, error)
}

// A Lister finds the keys that are held. Like an [Inspector] it is for people.
type Lister interface {
	// List reads a page of the keys that begin with prefix. It tells the keys that keep callers out:
	// they have a hold or a reservation, or are Foreign. It leaves out free keys, keys of a type that
	// the store does not write, and keys with a NUL, which no Client takes.
	//
	// after is empty for the first page, and then the Next of the page before, with the same prefix.
	// limit is about how many keys the call looks at, from 1 to [MaxPage]. So a page may have fewer
	// keys, even none although others follow, and in some stores a few more.
	//
	// All pages together are no picture of one instant. A key that is held from the first call to the
	// end of the last is told at least once, and may be told twice. While the store moves keys between
	// servers, keys may be missing. List changes nothing, and may be resent.
	//
	// A key alone does not tell a lock from other data. So a store whose keys lie beside the data of
	// others refuses an empty prefix, unless the store itself has one. That error is permanent, as is
	// that of a wrong limit or a wrong after.
	List(ctx context.Context, prefix, after string, limit int) (Page, error)
}

// Page is a part of what a [Lister] finds.
type Page struct {
	Keys []KeyState // in no order
	Next string     // where the next page begins; empty: this was the last
}

// KeyState is a key, as the store is asked for it, and its State.
type KeyState struct {
	Key string
	State
}

// MaxPage is the largest limit of List.
const MaxPage = 1000

// ValidateLimit says what is wrong with a limit of List.
func ValidateLimit(limit int) error {
	if limit < 1 || limit > MaxPage {
		return fmt.Errorf("a limit of %d keys is not possible: use 1 to %d", limit, MaxPage)
	}
	return nil
}

// An Evictor ends a hold without its token, for a person who has seen that its holder is stuck.
type Evictor interface {
	// Evict ends the hold of key whose Print is seen, in one step. Its holder finds out at its next
	// renewal, as after any loss, and may work until then. So the key, or the room of a shared hold,
	// stays closed until the hold would have ended by itself. It is then a Hold with Evicted. Numbers
	// keep rising.
	//
	// Evict returns false if key has no such hold any more: it has ended, or another holder has the
	// key. Nothing was changed then. It is sent once. If the outcome is unknown, Inspect tells it.
	//
	// A value that may be no lock is left alone, with an error that matches [ErrForeign], unless e
	// says otherwise. A value of a type that the store does not write is an error that matches
	// [ErrWrongType]. Both are permanent.
	Evict(ctx context.Context, key, seen string, e Eviction) (ok bool, err error)
}

// Eviction says how [Evictor] ends a hold.
type Eviction struct {
	By      string // a label for the Hold that closes the key, as for locker.WithHolder; may be empty
	Now     bool   // open the key at once, and wake waiters as a release does: the holder has stopped for sure
	Foreign bool   // also end a Hold that is Foreign and, with Now, remove a text without expiry
}

// Validate says what is wrong with a call of Evict.
func (e Eviction) Validate(seen string) error {
	switch {
	case seen == "":
		return errors.New("the print is empty: take that of a Hold")
	case e.By != "" && !ValidHolder(e.By):
		return fmt.Errorf("%q in By can't be a label (see locker.WithHolder)", e.By)
	}
	return nil
}

// Value is what a store puts in the place of the evicted token whose Print is seen. It is a token that
// nobody has. It depends on seen, so that the holder of that token knows its own eviction from that of
// another hold: see [Hold.Replaces].
func (e Eviction) Value(seen string) string {
	sum := sha256.Sum256([]byte(evicted + seen))
	return evicted + e.By + " " + base32.StdEncoding.EncodeToString(sum[:])[:secretLength]
}

const evicted = "lockstep:evicted:" // which no label begins with

// EvictedBy takes [Eviction.By] out of a [Result.Holder]. It returns false if that is the label of a
// holder.
func EvictedBy(holder string) (by string, ok bool) { return strings.CutPrefix(holder, evicted) }

// ErrForeign is matched by the error of an Evict that finds no token of a Client.
var ErrForeign = errors.New("the value may be no lock: it has no expiry, or not the form of a token (see backends.Eviction)")

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
	Waiting  int      // how many waiters are in the queue; [NotKnown]: the store keeps no queue, or another value is in its place
	Reserved int      // how many reservations there are for waiters; they keep others out, and are no holds
	Foreign  bool     // no lease wrote what is under the key: it has no expiry, or it is a sorted set of other software
	Print    string   // names a Foreign text, as that of a Hold; empty for all else
}

// NotKnown is a count that a store can't tell. A count of 0 says that there are none.
const NotKnown = -1

// Hold is one hold of a key.
type Hold struct {
	Holder  string        // the label of the holder, see [HolderOf]; empty: it has given none
	Left    time.Duration // until the hold ends, unless it is renewed
	Slot    int           // see [Admission.Slots]; -1: it has none
	Print   string        // names the hold, for [Evictor]: 16 hex digits. It renews and releases nothing
	Foreign bool          // it is no token of a Client (see [IsToken]), so it may be a cache entry, or a lock of other software
	Evicted bool          // it was evicted, and keeps others out until it ends; Holder is [Eviction.By]
}

// HoldOf returns the Hold of a token whose label, as far as it has one, is that of HolderOf or of
// an Eviction. The label may come from a server that has cut the secret off.
func HoldOf(label, name string, isToken bool, left time.Duration, slot int) Hold {
	h := Hold{Left: left, Slot: slot, Print: name, Foreign: !isToken}
	label, h.Evicted = EvictedBy(label)
	if ValidHolder(label) {
		h.Holder = label
	}
	return h
}

// Replaces reports whether h keeps the key closed in the place of the hold of token, which was evicted.
// It knows the prints of [PrintOf], and those of Redis, which has no SHA-256.
func (h Hold) Replaces(token string) bool {
	e := Eviction{By: h.Holder}
	return h.Evicted && (h.Print == PrintOf(e.Value(PrintOf(token))) || h.Print == oldPrintOf(e.Value(oldPrintOf(token))))
}

func oldPrintOf(token string) string {
	sum := sha1.Sum([]byte(token))
	return hex.EncodeToString(sum[:8])
}

// PrintOf is the Print of a token: the first 8 bytes of its SHA-256, in hex. A store may use
// another hash that its server can compute. Of a token nothing can be read from it, since its
// secret has 130 bits. A short value of other software can be guessed.
func PrintOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:8])
}

// IsToken reports whether text has the form of the tokens of a Client: 26 letters of base32, alone
// or behind a space.
func IsToken(text string) bool {
	i := len(text) - secretLength
	return i >= 0 && (i == 0 || text[i-1] == ' ') && strings.Trim(text[i:], "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// MaxListed is how many holds, and how many waiters, a [State] lists.
const MaxListed = 100

// HolderOf returns the label in a token, or in the name of a waiter, that was made with
// locker.WithHolder: what stands before the last space, if 26 letters of base32 follow and it is a
// [ValidHolder]. For any other text it is empty. What follows is a secret.
func HolderOf(text string) string {
	if label := LabelOf(text); ValidHolder(label) {
		return label
	}
	return ""
}

// InTheWay is the [Result.Holder] of a key that has a token with this label: see [LabelOf]. It is
// empty for a label that is not valid, since any program may have written the value.
func InTheWay(label string) string {
	if by, ok := EvictedBy(label); ok && by == "" || ValidHolder(by) {
		return label
	}
	return ""
}

// LabelOf is what stands before the secret of a token, valid or not, for [HoldOf].
func LabelOf(token string) string {
	if !IsToken(token) {
		return ""
	}
	return token[:max(len(token)-secretLength-1, 0)]
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
