package stores

// What the errors of the stores tell a programmer, and what a user of the command types for it. A longer
// text stands before a shorter one that begins alike.

var redisTerms = []string{
	"redisstore.WithoutScripts with the strategy single", "scripts=off in the URL, and -strategy single",
	"redisstore.WithoutScripts", "scripts=off in the URL",
	"the store has the option WithoutScripts", "the URL has scripts=off",
	"redisstore.WithoutWakes", "wakes=off in the URL",
	"redisstore.WithReplicas", "replicas=NUMBER in the URL",
	"redisstore.WithoutQuarantine", "quarantine=off in the URL",
	"redisstore.WithQuarantine", "-quarantine",
	"redisstore.WithMaxTTL", "-max-ttl",
	"redisstore.WithPrefix", "-key-prefix",
	"check RootCAs and ServerName of the client's tls.Config", "check ca=FILE in the URL, and that the certificate is for the host in the URL",
	"check Certificates of the client's tls.Config", "check cert=FILE and key=FILE in the URL",
}

var sqlTerms = []string{
	"run `lockstep install` or call Install once", "run `lockstep install`",
	"call Install once", "run `lockstep install`",
	"call Install", "run `lockstep install`",
	"leave out Install", "do without `lockstep install`",
	"`lockstep install -grant ROLE` and sqlstore.PostgreSQLGrants list", "`lockstep install -grant ROLE` prints",
	"sqlstore.WithMaxTTL", "-max-ttl",
	"pgxstore.WithListener", "listener=URL in the URL",
	"the DSN names", "the URL names",
	"switch it on in the DSN", "switch it on in the URL",
	"for each connection, in the DSN", "for each connection of the programs",
	"remove mode=ro and immutable=1 from the DSN, and give this user", "give this user",
	"leave it alone, or give the locks a *sql.DB of their own", "remove timestamp from the URL",
	"which ends a Lock without WithWait", "which ends a run without -w",
}

var etcdTerms = []string{
	"etcd.WithMaxTTL", "-max-ttl",
	"etcd.WithPrefix", "-key-prefix",
	"use http:// in Endpoints", "use etcd:// in the URL",
	"use https:// in Endpoints", "use etcds:// in the URL",
}

var natsTerms = []string{
	"call Store.Install once, with the options of this store,", "run `lockstep install` with this URL,",
	"call Store.Install", "run `lockstep install`",
	"call Install once", "run `lockstep install`",
	"call Install with 1", "add replicas=1 to the URL",
	"make another stream by Install", "make another stream by `lockstep install`",
	"run Store.Check", "run `lockstep doctor`",
	"that Store.Permissions lists", "that docs/security.md lists",
	"; nats.ReconnectErrHandler tells why each attempt fails", "",
	"connect without nats.Secure", "use nats:// in the URL",
	"make a new connection, with nats.MaxReconnects(-1)", "start the command again",
	"natsstore.WithMaxTTL", "-max-ttl",
	"natsstore.WithStream", "stream=NAME in the URL",
	"natsstore.WithSubject", "subject=NAME in the URL",
}
