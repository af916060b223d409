// Package stores has the stores that the lockstep command is built with: one file for each family.
package stores

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/cmd/lockstep/command"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Redis is a server, a cluster, or a master that sentinels watch. The parameters of the URL are ca, cert and
// key (files, for rediss), and one for each option of package redisstore that programs may have:
// scripts=off, wakes=off, replicas=NUMBER with replicas_timeout=DURATION, and quarantine=off.
func Redis() command.Family {
	return command.Family{
		Schemes: []string{"redis", "rediss", "unix", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel"},
		Examples: []string{
			"redis://user:password@host:6379/0",
			"rediss://host:6380?ca=/etc/redis/ca.pem&cert=/etc/redis/client.pem&key=/etc/redis/client-key.pem",
			"unix:///run/redis.sock",
			"redis+cluster://user:password@host1:6379,host2:6379",
			"redis+sentinel://host1:26379,host2:26379/MASTER/0?username=user&password=secret",
		},
		Open:  openRedis,
		Terms: redisTerms,
	}
}

func openRedis(_ context.Context, text string, o command.Options) (*command.Store, error) {
	logging.Disable() // go-redis writes a line for every dial that fails
	opts := []redisstore.Option{redisstore.WithMaxTTL(o.MaxTTL)}
	if o.Prefix != "" {
		opts = append(opts, redisstore.WithPrefix(o.Prefix))
	}
	if o.Strict {
		opts = append(opts, redisstore.WithQuarantine(o.MaxTTL))
	}
	store, client, err := dialRedis(text, opts)
	if err != nil {
		return nil, err
	}
	return &command.Store{
		Backend: store,
		ListOwn: store.ListOwn,
		Check: func(ctx context.Context) (command.Report, error) {
			r, err := store.Check(ctx)
			return command.Report{Server: redisServer(r.Version), Findings: r.Findings, ClockSkew: r.ClockSkew}, err
		},
		Remedy: remedyRedis,
		Advise: advise(adviseRedis),
		Close:  func() { _ = client.Close() }, // nothing is written that it could lose
	}, nil
}

func dialRedis(text string, opts []redisstore.Option) (*redisstore.Store, io.Closer, error) {
	u, others, err := command.ParseURL(text)
	if err != nil {
		return nil, nil, err
	}
	q := u.Query()
	files, err := tlsOf(q)
	if err != nil {
		return nil, nil, err
	}
	more, quarantine, err := redisOptions(q)
	if err != nil {
		return nil, nil, err
	}
	opts = append(opts, more...)
	u.RawQuery = q.Encode()
	scheme, kind, _ := strings.Cut(u.Scheme, "+")
	u.Scheme = scheme
	switch kind {
	case "cluster":
		o, err := redis.ParseClusterURL(withHosts(u, others).String())
		if err != nil {
			return nil, nil, err
		}
		if err := withFiles(o.TLSConfig, files); err != nil {
			return nil, nil, err
		}
		fit(&o.MaxRetries, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.ConnMaxIdleTime, &o.ContextTimeoutEnabled, &o.DisableIdentity)
		o.MaintNotificationsConfig = plain()
		if quarantine {
			opts = append(opts, goredis.Quarantine(o))
		}
		client := redis.NewClusterClient(o)
		return goredis.New(client, opts...), client, nil
	case "sentinel":
		master, db, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
		if master == "" {
			return nil, nil, errors.New("the name of the master is missing: redis+sentinel://host:26379/NAME")
		}
		u = withHosts(u, others)
		q := u.Query()
		q.Set("master_name", master)
		u.Path, u.RawQuery = "/"+db, q.Encode()
		o, err := redis.ParseFailoverURL(u.String())
		if err != nil {
			return nil, nil, err
		}
		if err := withFiles(o.TLSConfig, files); err != nil {
			return nil, nil, err
		}
		fit(&o.MaxRetries, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.ConnMaxIdleTime, &o.ContextTimeoutEnabled, &o.DisableIdentity)
		if quarantine {
			opts = append(opts, goredis.Quarantine(o))
		}
		client := redis.NewFailoverClient(o)
		return goredis.New(client, opts...), client, nil
	}
	if len(others) > 0 {
		return nil, nil, errors.New("one server has one host; several are redis+cluster://, redis+sentinel://, or several stores")
	}
	o, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, nil, err
	}
	if err := withFiles(o.TLSConfig, files); err != nil {
		return nil, nil, err
	}
	store, client := goredis.Open(o, opts...)
	return store, client, nil
}

// redisOptions reads the parameters that stand for options, and takes them out of q. quarantine tells
// whether the store watches for servers that have forgotten.
func redisOptions(q url.Values) (opts []redisstore.Option, quarantine bool, err error) {
	scripts, wrongScripts := isOff(q, "scripts")
	wakes, wrongWakes := isOff(q, "wakes")
	off, wrongQuarantine := isOff(q, "quarantine")
	if scripts {
		opts = append(opts, redisstore.WithoutScripts())
	}
	if wakes {
		opts = append(opts, redisstore.WithoutWakes())
	}
	if off {
		opts = append(opts, redisstore.WithoutQuarantine())
	}
	err = errors.Join(wrongScripts, wrongWakes, wrongQuarantine)
	if text := q.Get("replicas"); text != "" {
		n, wrong := strconv.Atoi(text)
		limit, wrongLimit := time.ParseDuration(cmp.Or(q.Get("replicas_timeout"), "1s"))
		if err = errors.Join(err, wrong, wrongLimit); err == nil {
			opts = append(opts, redisstore.WithReplicas(n, limit))
		}
	}
	q.Del("replicas")
	q.Del("replicas_timeout")
	return opts, !off, err
}

// withHosts adds the other hosts as go-redis takes them.
func withHosts(u *url.URL, others []string) *url.URL {
	q := u.Query()
	for _, addr := range others {
		q.Add("addr", addr)
	}
	u.RawQuery = q.Encode()
	return u
}

// fit sets what goredis.Open sets for one server.
func fit(retries *int, dial, read, write, idle *time.Duration, contexts, unnamed *bool) {
	if *retries == 0 {
		*retries = 1
	}
	for _, d := range []*time.Duration{dial, read, write} {
		if *d == 0 {
			*d = time.Second
		}
	}
	if *idle == 0 {
		*idle = time.Minute
	}
	*contexts, *unnamed = true, true
}

// plain keeps go-redis from asking a new connection for notifications.
func plain() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// redisServer is the kind and version of a server. The version of Valkey begins with its name.
func redisServer(version string) string {
	if strings.HasPrefix(version, "Valkey ") {
		return version
	}
	return "Redis " + version
}

func remedyRedis(f backends.Finding) string {
	switch f.Problem {
	case redisstore.ProblemRole:
		return "redis-cli -h HOST ROLE names the master: give its address, or redis+sentinel://"
	case redisstore.ProblemRestarted:
		return "wait until the server is up for the longest TTL; -quarantine refuses locks until then"
	case redisstore.ProblemUptime:
		return "use a server that tells uptime_in_seconds in INFO server"
	case redisstore.ProblemEviction:
		return "redis-cli CONFIG SET maxmemory-policy noeviction"
	case redisstore.ProblemPersistence:
		if strings.HasPrefix(f.Detail, "appendfsync") {
			return "redis-cli CONFIG SET appendfsync always; or a quorum of servers"
		}
		return "redis-cli CONFIG SET appendonly yes; or -quarantine"
	case redisstore.ProblemReplicas:
		return "show LOCKSTEP_FENCE to the resource; or use a quorum of servers without replicas"
	case redisstore.ProblemClock:
		return "chronyc makestep on the host of the server, or on this one, while no lock is held"
	case redisstore.ProblemPermission:
		command, _, _ := strings.Cut(f.Detail, " is not")
		return "redis-cli ACL SETUSER USER +" + strings.ReplaceAll(strings.ToLower(command), " ", "|")
	case redisstore.ProblemUnknown:
		return "redis-cli INFO: look why the server does not tell"
	}
	return ""
}
