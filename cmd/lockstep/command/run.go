package command

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// running is one `lockstep run`.
type running struct {
	*cli
	noWait    bool
	wait      time.Duration
	heldCode  int
	ttl       time.Duration
	grace     time.Duration
	atLeast   time.Duration
	max       time.Duration
	keepGoing bool
	passStore bool
	holder    string

	name  string
	argv  []string
	locks locker.Locker
	held  bool // the lock was granted
}

const defaultTTL = 30 * time.Second

func runCommand() *command {
	return &command{
		name: "run", args: "[FLAGS] NAME -- COMMAND [ARGS]", atLeast: 1, atMost: 1, dashes: true,
		summary: "run a command while holding a lock",
		text: `The command is started when the lock is held, and the lock is released when it has ended. Meanwhile
the lease is renewed. There is no shell in between: write sh -c '...' to have one.

If the lease can't be renewed, the command is stopped before the lease ends: TERM goes to its process group, and
KILL after -grace. KILL is a twentieth of -ttl before the end of the lease, half a second at most, since a busy
machine is late. So nothing of the group runs beside the next holder. A guard process does the same if lockstep itself
is killed or stopped. It sends TERM as soon as lockstep is gone, or when three quarters of -grace are left to a
lockstep that is stopped. It sends KILL after -grace or before the end of the lease, whichever is first.

Two kinds of processes are not reached: those that leave the group (setsid, a daemon), and those that run as another
user (sudo). While processes of another user are left in the group, lockstep waits for them and renews the lock, but
it can't end them if the lock is lost. To cover such processes, and requests already sent, pass LOCKSTEP_FENCE to the
resource.

With -at-least, a process lockstep-keeper may stay behind when the command has ended: it releases the lock when
-at-least is over, if the lease ends later. It stays for less than -ttl. As process 1 of a container, lockstep itself
stays. Without that process the lock is free when the lease ends.

When the command ends and processes of its group are left, these get TERM, and KILL after -grace, before the lock is
released.

INT, TERM, HUP, QUIT, USR1, USR2 and WINCH are passed on to the group. A second INT or TERM within two seconds is
KILL. The same signal again within 100 ms counts as one, since timeout(1) sends it twice. While lockstep waits for the
lock, INT, TERM and HUP end the wait. If standard input is a terminal, the command gets it, unless standard output is
a pipe. A command that reads a terminal which it does not have is stopped by the system: lockstep says so, and the lock
stays held. A job that is stopped by Ctrl-Z is not renewed: if it stays stopped until the lease ends, it is killed.

The command finds in its environment LOCKSTEP_KEY, LOCKSTEP_FENCE (the number of the grant, if the store numbers),
LOCKSTEP_TTL_MS and LOCKSTEP_HOLDER, LOCKSTEP_HELD (the prints of this hold and of those around it), and TRACEPARENT
as it was. A LOCKSTEP_STORE with a password is removed. By LOCKSTEP_HELD, a run or acquire inside of the command that
could only wait for its own end is refused. So is a reader inside of a reader: if a writer waits, the inner one waits
for the writer, and the writer for the outer one. With -n it does not wait, and is not refused.`,
		example: []example{
			{"lockstep run -n -E 0 -at-least 55s report -- ./report", "for cron on several hosts: each minute one of them runs it, and the others do nothing"},
			{"lockstep run -w 10m deploy -- ./deploy production", "wait for ten minutes at most"},
			{"lockstep run -ttl 10s -max 1h backup -- sh -c 'pg_dump app > app.sql'", "free ten seconds after a crash; end after an hour"},
		},
		exits: []exit{
			{"its own", "of the command, which ran under the lock to its end"},
			{"128+n", "the command was ended by signal n; or signal n ended the wait"},
			{"75", "the lock is held, with -n or after -w; -E changes it"},
			{"69", "the store did not answer before the command was started; nothing ran"},
			{"74", "the lock was lost, and the command was stopped; with -keep-going it ran to its end"},
			{"77", "refused: a missing permission, quarantine, or a key of another type; nothing ran"},
			{"124", "-max is over, and the command was stopped"},
			{"126", "the command can't be run"},
			{"127", "the command was not found"},
			{"64", "bad flags, no store is given, or it would wait for a run that it is a part of; nothing ran"},
		},
		setup: func(c *cli, fs *flag.FlagSet) func(context.Context, []string) error {
			r := &running{cli: c, ttl: defaultTTL, grace: -1, wait: -1}
			fs.BoolVar(&r.noWait, "n", false, "do not wait if the lock is held")
			fs.Var(seconds{&r.wait}, "w", "wait for `duration` at most, also while the store does not answer; default: as long as the lock is held, but not for a store that does not answer")
			fs.IntVar(&r.heldCode, "E", exitHeld, "exit `code` when the lock is held")
			fs.Var(seconds{&r.ttl}, "ttl", "how long the lock stays locked after a crash (`duration`)")
			fs.Var(seconds{&r.grace}, "grace", "`duration` between TERM and KILL; less than half of -ttl, default: a third of it")
			fs.Var(seconds{&r.atLeast}, "at-least", "keep the lock until `duration` after the grant, although the command has ended")
			fs.Var(seconds{&r.max}, "max", "stop the command after `duration`")
			fs.BoolVar(&r.keepGoing, "keep-going", false, "do not stop the command when the lock is lost, only say so")
			fs.BoolVar(&r.passStore, "pass-store", false, "leave a LOCKSTEP_STORE with a password in the environment of the command")
			fs.StringVar(&r.holder, "holder", "", "`label` that others see; default: host/process/command")
			return r.run
		},
	}
}

func (r *running) run(ctx context.Context, args []string) error {
	if !canRun {
		return usage("this system has no process groups and signals as run needs them: use Linux, macOS or a BSD")
	}
	r.name, r.argv = args[0], args[1:]
	if err := r.check(); err != nil {
		return err
	}
	lines := newPatient(r.err)
	defer func(err io.Writer) {
		lines.flush()
		r.err = err
	}(r.err)
	r.err = lines
	path, err := exec.LookPath(r.argv[0])
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return &exitError{exitNotFound, err}
	case err != nil:
		return &exitError{exitCannotRun, err}
	}
	stores, err := r.open(ctx, r.ttl)
	if err != nil {
		return err
	}
	defer shut(stores)
	l, strategy, err := r.nodes(ctx, stores)
	if err != nil {
		return err
	}
	if err := r.waitsForItself(ctx, stores); err != nil {
		return err
	}
	r.locks = l
	locks := locker.New(l, locker.WithHolder(r.holder))
	err = r.under(ctx, locks, strategy, path)
	r.leave(stores, err)
	drain(locks, patience(err, 2*time.Second))
	return err
}

// nodes is locker. With -w it waits for the nodes of a quorum that do not answer, or grant nothing yet.
func (r *running) nodes(ctx context.Context, stores []*Store) (locker.Locker, string, error) {
	for limit := time.Now().Add(r.wait); ; time.Sleep(200 * time.Millisecond) {
		l, strategy, err := r.locker(ctx, stores)
		if !r.passes(err, len(stores)) || !time.Now().Before(limit) {
			if r.wait >= 0 {
				r.wait = max(time.Until(limit), 0)
			}
			return l, strategy, err
		}
	}
}

// passes tells whether the error of a quorum may end by itself: enough nodes do not answer, or are in
// quarantine. A node that lacks a permission stays as it is.
func (r *running) passes(err error, nodes int) bool {
	var found *backends.NodesError
	if !errors.As(err, &found) {
		return false
	}
	refuse := 0
	for _, err := range found.Unreachable {
		if exitCode(err) == exitNoPerm && backends.Permanent(err) {
			refuse++
		}
	}
	return len(found.Unreachable) > 0 && refuse <= nodes-r.need(nodes)
}

// check refuses flags that do not fit, before anything is sent.
func (r *running) check() error {
	if len(r.argv) == 0 {
		return usage("the command is missing behind --: lockstep run NAME -- COMMAND")
	}
	if r.grace < 0 {
		r.grace = (r.ttl / 3).Truncate(time.Millisecond)
	}
	if r.holder == "" {
		r.holder = label(filepath.Base(r.argv[0]))
	}
	switch {
	case r.noWait && r.wait >= 0:
		return usage("-n does not wait and -w does: give one of them")
	case r.heldCode < 0 || r.heldCode > 255:
		return usage("-E %d is no exit code: use 0 to 255", r.heldCode)
	case r.ttl <= 2*r.grace:
		return usage("-grace %v is too long for -ttl %v: it must be less than half, or there is no time left to renew", r.grace, r.ttl)
	}
	if err := contract.ValidateKey(r.name); err != nil {
		return usage("%w", err)
	}
	return nil
}

func (r *running) options() []locker.Option {
	opts := []locker.Option{locker.WithTTL(r.ttl)}
	if r.atLeast > 0 {
		opts = append(opts, locker.WithMinHold(r.atLeast))
	}
	if r.wait > 0 {
		opts = append(opts, locker.WithWait(r.wait))
	}
	return opts
}

// waits tells whether the call waits if the lock is held.
func (r *running) waits() bool { return !r.noWait && r.wait != 0 }

// lock takes the lock as the flags say.
func (r *running) lock(ctx context.Context, locks *locker.Client) (*locker.Lock, error) {
	lock := locks.TryLock
	if r.waits() {
		lock = locks.Lock
	}
	l, err := lock(ctx, r.name, r.options()...)
	r.held = err == nil
	return l, err
}

// leave waits until this process has left the queue of the lock, if it did wait and was not granted
// it. The Client leaves a moment after the wait, and a position that stays would cost the others a
// reservation.
func (r *running) leave(stores []*Store, err error) {
	if r.noWait || r.held {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience(err, time.Second))
	defer cancel()
	for _, s := range stores {
		inspector, ok := s.Backend.(backends.Inspector)
		for ok && ctx.Err() == nil {
			state, err := inspector.Inspect(ctx, r.name)
			if err != nil || !slices.Contains(state.Waiters, r.holder) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// refused is the error of a lock that was not granted.
func (r *running) refused(err error) error {
	code := exitCode(err)
	switch {
	case code != exitHeld:
		return &exitError{code, err}
	case r.heldCode == 0 && !r.verbose:
		return nil // cron would send a mail from each host that does nothing
	}
	return &exitError{r.heldCode, err}
}

// environment is that of the command.
func (r *running) environment(l *locker.Lock) (env []string) {
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		switch name {
		case "LOCKSTEP_KEY", "LOCKSTEP_FENCE", "LOCKSTEP_TTL_MS", "LOCKSTEP_HOLDER", heldVariable:
			continue
		case storeVariable:
			if slices.ContainsFunc(strings.Fields(value), hasPassword) && !r.passStore { // each URL of a quorum by itself
				continue
			}
		}
		env = append(env, v)
	}
	env = append(env, "LOCKSTEP_KEY="+r.name, "LOCKSTEP_HOLDER="+r.holder, "LOCKSTEP_TTL_MS="+strconv.FormatInt(r.ttl.Milliseconds(), 10),
		heldVariable+"="+heldBy(l.Lease().Token))
	if f := l.Fence(); f != 0 {
		env = append(env, "LOCKSTEP_FENCE="+strconv.FormatUint(f, 10))
	}
	return env
}

// unlock waits for a while. Before the end of -at-least it only extends the lease.
func unlock(l *locker.Lock) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	return l.Unlock(ctx)
}

// undo releases a lock under which nothing ran, also before the end of -at-least.
func (r *running) undo(l *locker.Lock) {
	_ = unlock(l)
	if r.atLeast > 0 {
		r.release(l.Lease())
	}
}

// release frees a lock that an Unlock has left locked for -at-least.
func (r *running) release(lease contract.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = r.locks.Release(ctx, lease) // if not, the lease ends by itself
}

// patience is how long the end of the process waits for the store. One that has just not answered within
// -w will hardly do so now, and what is left there ends by itself.
func patience(err error, limit time.Duration) time.Duration {
	if exitCode(err) == exitUnavailable {
		return limit / 4
	}
	return limit
}

// drain lets the cleanup of an unknown outcome go out before the process ends.
func drain(locks *locker.Client, limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_ = locks.Drain(ctx) // what is left ends with its TTL
}

// label is a holder: this host, this process and what it does.
func label(does string) string {
	host, _ := os.Hostname()
	host, _, _ = strings.Cut(host, ".")
	text := fmt.Sprintf("%s/%d/%s", cmp.Or(host, "host"), os.Getpid(), does)
	if backends.ValidHolder(text) {
		return text
	}
	return strconv.Itoa(os.Getpid())
}

// ended is what run prints with -json on standard error when the command has ended.
type ended struct {
	Key    string `json:"key"`
	Fence  uint64 `json:"fence,omitempty"`
	Holder string `json:"holder"`
	Child  int    `json:"child"` // its exit code, or 128 and the number of the signal that ended it
	Exit   int    `json:"exit"`
	Lost   string `json:"lost,omitempty"`
	HeldMS int64  `json:"held_ms"`
}
