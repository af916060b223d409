package stores

import (
	"cmp"
	"context"
	"crypto/tls"
	"strings"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/cmd/lockstep/command"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Etcd is a cluster. The parameters ca, cert and key of an etcds URL are files in the form PEM; the
// certificates of the system are used without ca.
func Etcd() command.Family {
	return command.Family{
		Schemes: []string{"etcd", "etcds"},
		Examples: []string{
			"etcd://user:password@host1:2379,host2:2379,host3:2379",
			"etcds://host1:2379,host2:2379?ca=/etc/etcd/ca.pem&cert=/etc/etcd/client.pem&key=/etc/etcd/client-key.pem",
		},
		Open:  openEtcd,
		Terms: etcdTerms,
	}
}

func openEtcd(_ context.Context, text string, o command.Options) (*command.Store, error) {
	config, err := etcdConfig(text)
	if err != nil {
		return nil, err
	}
	opts := []etcd.Option{etcd.WithMaxTTL(o.MaxTTL)}
	if o.Prefix != "" {
		opts = append(opts, etcd.WithPrefix(o.Prefix))
	}
	store, client, err := etcd.Open(config, opts...)
	if err != nil {
		return nil, err
	}
	return &command.Store{
		Backend: store,
		Check: func(ctx context.Context) (command.Report, error) {
			r, err := store.Check(ctx)
			return command.Report{Server: "etcd " + strings.Join(r.Versions, ", "), Findings: r.Findings}, err
		},
		Remedy: remedyEtcd,
		Advise: advise(adviseEtcd),
		Close:  func() { _ = client.Close() }, // nothing is written that it could lose
	}, nil
}

func etcdConfig(text string) (clientv3.Config, error) {
	u, others, err := command.ParseURL(text)
	if err != nil {
		return clientv3.Config{}, err
	}
	config := clientv3.Config{Username: u.User.Username(), Logger: zap.NewNop()} // also with ETCD_CLIENT_DEBUG
	config.Password, _ = u.User.Password()
	scheme := "http://"
	files, err := tlsOf(u.Query())
	switch {
	case err != nil:
		return config, err
	case u.Scheme == "etcds":
		scheme = "https://"
		config.TLS = cmp.Or(files, &tls.Config{MinVersion: tls.VersionTLS12})
	case files != nil:
		return config, errNoTLS
	}
	for _, host := range append([]string{u.Host}, others...) {
		config.Endpoints = append(config.Endpoints, scheme+host)
	}
	return config, nil
}

func remedyEtcd(f backends.Finding) string {
	switch f.Problem {
	case etcd.ProblemVersion:
		return "upgrade the member to etcd 3.5.13 or later, one after the other"
	case etcd.ProblemAlarm:
		if strings.Contains(f.Detail, "CORRUPT") {
			return "etcdctl endpoint hashkv --cluster shows which member differs: etcdctl member remove ID, and add a new one"
		}
		return compact + "; etcdctl alarm disarm"
	case etcd.ProblemSpace:
		return compact
	case etcd.ProblemMembers:
		switch {
		case strings.Contains(f.Detail, "learner"):
			return "etcdctl member promote ID"
		case strings.Contains(f.Detail, "voting members"):
			return "etcdctl member add NAME --peer-urls=URL"
		}
		return "etcdctl endpoint status --cluster -w table; start the member again, or look at its network"
	case etcd.ProblemCluster:
		return "etcdctl endpoint status -w table shows the cluster of each: give the URLs of one cluster"
	case etcd.ProblemLease:
		return "start the members with the default --election-timeout"
	case etcd.ProblemPermission:
		return "etcdctl user grant-role USER root, for this check only"
	}
	return ""
}

const compact = "etcdctl compact REVISION; etcdctl defrag --cluster; start the members with --auto-compaction-retention=1h"
