package stores

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/cmd/lockstep/command"
	"github.com/nats-io/nats.go"
)

// NATS is a JetStream stream. The parameters of the URL are stream and subject, if the programs use
// other ones than LOCKSTEP and lockstep; creds, a file of credentials; ca, cert and key, files for
// nats+tls; and replicas, for install.
func NATS() command.Family {
	return command.Family{
		Schemes: []string{"nats", "nats+tls"},
		Examples: []string{
			"nats://user:password@host1:4222,host2:4222,host3:4222",
			"nats+tls://host:4222?creds=/etc/nats/locks.creds&stream=LOCKS&subject=locks",
		},
		Open:  openNATS,
		Terms: natsTerms,
	}
}

func openNATS(_ context.Context, text string, o command.Options) (*command.Store, error) {
	if o.Prefix != "" {
		return nil, errors.New("keys have no prefix in NATS: give subject=NAME in the URL instead of -key-prefix")
	}
	u, others, err := command.ParseURL(text)
	if err != nil {
		return nil, err
	}
	q := u.Query()
	replicas, err := strconv.Atoi(q.Get("replicas"))
	if q.Has("replicas") && err != nil {
		return nil, errors.New("replicas is not a number")
	}
	files, err := tlsOf(q)
	if err != nil {
		return nil, err
	}
	opts := natsOptions(q)
	if files != nil {
		if u.Scheme != "nats+tls" {
			return nil, errNoTLS
		}
		opts = append(opts, nats.Secure(files))
	}
	failed := make(chan error, 1) // the first attempt to connect: the connection does not keep why
	opts = append(opts, nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
		select {
		case failed <- err:
		default:
		}
	}))
	conn, err := nats.Connect(natsServers(u, others), opts...)
	if err != nil {
		return nil, err
	}
	store := natsstore.New(conn, natsStream(q, o)...)
	return &command.Store{
		Backend: store,
		Check: func(ctx context.Context) (command.Report, error) {
			r, err := store.Check(ctx)
			if err != nil && !conn.IsConnected() {
				select {
				case why := <-failed:
					err = &unconnected{err, why}
				case <-ctx.Done():
				}
			}
			return command.Report{Server: "NATS " + r.Version, Findings: r.Findings, ClockSkew: r.ClockSkew}, err
		},
		Remedy:  remedyNATS,
		Advise:  advise(adviseNATS),
		Ageless: true, // a number is the time when the stream was created, and how many messages came since
		Install: func(ctx context.Context) error {
			if replicas == 0 {
				replicas = 1
				if conn.ConnectedClusterName() != "" {
					replicas = 3
				}
			}
			return store.Install(ctx, replicas)
		},
		Close: conn.Close,
	}, nil
}

// unconnected is an error of a call without a connection, and why there is none.
type unconnected struct {
	error
	why error
}

func (e *unconnected) Unwrap() error { return e.error }
func (e *unconnected) Error() string {
	return fmt.Sprintf("%v; the attempt to connect: %v", e.error, e.why)
}

// natsServers is the list of servers, as nats.go takes it.
func natsServers(u *url.URL, others []string) string {
	scheme := strings.TrimPrefix(u.Scheme, "nats+") // nats or tls
	servers := make([]string, 0, 1+len(others))
	for _, host := range append([]string{u.Host}, others...) {
		servers = append(servers, (&url.URL{Scheme: scheme, User: u.User, Host: host}).String())
	}
	return strings.Join(servers, ",")
}

// natsOptions let a call fail while no server answers, instead of the start of the command.
func natsOptions(q url.Values) []nats.Option {
	opts := []nats.Option{
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.PingInterval(2 * time.Second), nats.Timeout(2 * time.Second),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // the calls tell
	}
	if file := q.Get("creds"); file != "" {
		opts = append(opts, nats.UserCredentials(file))
	}
	return opts
}

func natsStream(q url.Values, o command.Options) []natsstore.Option {
	opts := []natsstore.Option{natsstore.WithMaxTTL(o.MaxTTL)}
	if name := q.Get("stream"); name != "" {
		opts = append(opts, natsstore.WithStream(name))
	}
	if subject := q.Get("subject"); subject != "" {
		opts = append(opts, natsstore.WithSubject(subject))
	}
	return opts
}

func remedyNATS(f backends.Finding) string {
	switch f.Problem {
	case natsstore.ProblemVersion:
		return "upgrade the servers to NATS 2.11 or later"
	case natsstore.ProblemInstall:
		return "lockstep install, as a user who may publish to $JS.API.STREAM.CREATE.STREAM"
	case natsstore.ProblemSettings:
		return "nats stream edit STREAM; or stream=NAME in the URL, and lockstep install"
	case natsstore.ProblemPersistence:
		return "nats stream rm STREAM while no lock is held, then lockstep install"
	case natsstore.ProblemSync:
		return fmt.Sprintf("jetstream { sync_interval: always } in the configuration of each server; then -allow %s", natsstore.ProblemSync)
	case natsstore.ProblemReplicas:
		if strings.Contains(f.Detail, "offline") {
			return "nats server report jetstream; start the server again"
		}
		return "nats stream edit STREAM --replicas 3"
	case natsstore.ProblemSpace:
		return "nats stream edit STREAM --max-bytes=-1 --max-msgs=-1"
	case natsstore.ProblemClock:
		return "chronyc makestep on the host of the leader, or on this one, while no lock is held"
	}
	return ""
}
