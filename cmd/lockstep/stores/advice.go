package stores

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"

	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
)

// What to do against an error of a store. Each function tells as well whether a server has answered: a
// remedy for a server that does not run is of no use then.

// advise is of, and before it what is alike for all stores: TLS and names.
func advise(of func(error) (string, bool)) func(error) (string, bool) {
	return func(err error) (string, bool) {
		text := err.Error()
		switch remedy, answered := of(err); {
		case remedy != "" || answered:
			return remedy, answered
		case isUntrusted(err) || strings.Contains(text, "x509: "):
			return "ca=FILE in the URL names who signed the certificate of the server; the certificate must be for the host in the URL", true
		case strings.Contains(text, "remote error: tls: ") && strings.Contains(strings.ToLower(text), "certificate"):
			return "cert=FILE and key=FILE in the URL name the certificate of this client", true
		case errors.As(err, new(tls.RecordHeaderError)), strings.Contains(text, "may not speak TLS"):
			return "use the scheme without TLS, or the port with TLS", true
		case strings.Contains(text, "server refused TLS"):
			return "TLS on the server (ssl = on), or sslmode=disable in the URL", true
		case strings.Contains(text, "server does not support TLS"):
			return "TLS on the server (ssl_cert and ssl_key), or tls=false in the URL", true
		case strings.Contains(text, "may speak only TLS"):
			return "use the scheme with TLS, or the port without TLS", true
		case errors.As(err, new(*net.DNSError)), strings.Contains(text, "no such host"):
			return "look at the name of the host in the URL", false
		}
		return "", false
	}
}

func isUntrusted(err error) bool {
	return errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(x509.UnknownAuthorityError))
}

func adviseRedis(err error) (string, bool) {
	reply, ok := errors.AsType[*driver.ReplyError](err)
	if !ok {
		return "", false
	}
	switch reply.ErrorType() {
	case "redis_maxclients":
		return "redis-cli CLIENT LIST shows who is connected; redis-cli CONFIG SET maxclients NUMBER", true
	case "redis_denied":
		return "redis-cli CONFIG SET requirepass PASSWORD, on the host of the server, and the password in the URL", true
	case "redis_noauth", "redis_wrongpass":
		return "redis://USER:PASSWORD@HOST:PORT; redis-cli ACL LIST shows the users", true
	case "redis_noperm":
		return "redis-cli ACL LOG shows what is missing: ACL SETUSER USER +COMMAND ~KEYS &CHANNELS, see docs/security.md", true
	case "redis_oom":
		return "redis-cli INFO memory; redis-cli CONFIG SET maxmemory BYTES", true
	case "redis_misconf":
		return "redis-cli INFO persistence; look at the disk and the log of the server, which can't write its data", true
	case "redis_noreplicas":
		return "redis-cli INFO replication; start the replicas, or redis-cli CONFIG SET min-replicas-to-write 0", true
	case "redis_loading":
		return "redis-cli INFO persistence: wait until the server has read its data", true
	case "redis_busy":
		return "redis-cli SCRIPT KILL ends the script that keeps the server busy", true
	case "redis_readonly", "redis_masterdown":
		return "redis-cli -h HOST ROLE names the master: give its address, or redis+sentinel://", true
	case "redis_moved", "redis_crossslot":
		return "use the scheme redis+cluster://", true
	case "redis_clusterdown":
		return "redis-cli --cluster check HOST:PORT", true
	case "redis_wrongtype":
		return "-key KEY that no other program uses", true
	}
	switch text := strings.ToUpper(reply.Text); {
	case strings.HasPrefix(text, "ERR UNKNOWN COMMAND") && strings.Contains(text, "EVAL"):
		return "scripts=off in the URL, and -strategy single", true
	case strings.Contains(text, "DB INDEX"), strings.Contains(text, "SELECT IS NOT ALLOWED"):
		return "redis-cli CONFIG GET databases; give a number below at the end of the URL", true
	case reply.Connecting && reply.Permanent():
		return "the URL without a password, if the server has none; else redis://USER:PASSWORD@HOST:PORT", true
	}
	return "", true
}

// told is what a database has told.
func told(err error) (e *sqlstore.StatementError, ok bool) {
	return errors.AsType[*sqlstore.StatementError](err)
}

func advisePostgreSQL(err error) (string, bool) {
	e, ok := told(err)
	if !ok {
		return "", false
	}
	switch e.State {
	case "3F000", "42P01", "42883":
		return "lockstep install, as a role that may create a schema", true
	case "42704":
		if strings.Contains(e.Error(), "lockstep install") {
			return "lockstep install, as a role that may create a schema", true
		}
		return "look at the parameters of the URL: the server does not know one of them", true
	case "42501":
		return "lockstep install -grant ROLE | psql -d DATABASE, as the owner of the schema", true
	case "25006":
		return `give the URL of the primary, or add target_session_attrs=read-write; on the primary, ` +
			`psql -c "ALTER ROLE USER SET default_transaction_read_only = off"`, true
	case "28P01", "28000":
		return "look at user and password in the URL, and at pg_hba.conf", true
	case "3D000":
		return "createdb DATABASE, or another database in the URL; then lockstep install", true
	case "53300":
		return `psql -c "SELECT usename, count(*) FROM pg_stat_activity GROUP BY 1"; raise max_connections, or the CONNECTION LIMIT of the role`, true
	case "53100":
		return "make room on the disk of the server", true
	case "53200":
		return "give the server more memory, or fewer connections", true
	case "57P03", "57P01", "57P02":
		return "wait until the server has started; look at its log", true
	case "40001", "40P01", "55P03", "57014":
		return `psql -c "SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start" shows what it waits for`, true
	}
	return "", true
}

func adviseMySQL(err error) (string, bool) {
	e, ok := told(err)
	if !ok {
		return "", false
	}
	switch e.State {
	case "1146", "1054":
		return "lockstep install, as a user who may create a table", true
	case "1142", "1143", "1044":
		return `mysql -e "GRANT SELECT, INSERT, UPDATE, DELETE ON DATABASE.lockstep_lock TO USER"`, true
	case "1227":
		return `mysql -e "SHOW GRANTS FOR USER"`, true
	case "1045":
		return "look at user and password in the URL", true
	case "1046", "1049":
		return `mysql -e "CREATE DATABASE DATABASE", or another database in the URL; then lockstep install`, true
	case "1040", "1041", "1203", "1226":
		return `mysql -e "SHOW PROCESSLIST"; raise max_connections, or the limit of the user`, true
	case "1290", "1836":
		if e.Unsent() {
			return `give the URL of the server that takes the writes; on that server, mysql -e "SET GLOBAL read_only = OFF"`, true
		}
		return "remove the option that the error names from my.cnf, and restart", true
	case "1792":
		return `mysql -e "SET GLOBAL transaction_read_only = OFF" (tx_read_only in MariaDB)`, true
	case "1021", "1114":
		return "make room on the disk of the server", true
	case "1205", "1213", "1969":
		return `mysql -e "SHOW ENGINE INNODB STATUS" shows what it waits for`, true
	}
	return "", true
}

func adviseSQLite(err error) (string, bool) {
	e, ok := told(err)
	if !ok {
		return "look at the path and its file system", true // there is no server that could be down
	}
	switch e.State {
	case "14":
		return "lockstep install makes the file, in a folder that is there and that this user may write to", true
	case "1":
		return "lockstep install, as a user who may write the file", true
	case "8", "3", "23":
		return "chown or chmod the file and its folder, so that this user may write to both; look whether the file system is mounted read-only", true
	case "26", "11":
		return "give the path of another file, then lockstep install; or bring this one back from a backup", true
	case "13", "10":
		return "df PATH; make room on the disk", true
	case "5", "6":
		return "look for a program that keeps the file locked: fuser PATH", true
	}
	return "", true
}

func adviseEtcd(err error) (string, bool) {
	e, ok := errors.AsType[*etcd.Error](err)
	if !ok || !strings.HasPrefix(e.Err.Error(), "etcdserver: ") {
		return "", false
	}
	switch text := e.Err.Error(); {
	case strings.Contains(text, "database space exceeded"):
		return compact + "; etcdctl alarm disarm", true
	case strings.Contains(text, "corrupt"):
		return "etcdctl endpoint hashkv --cluster shows which member differs: etcdctl member remove ID, and add a new one", true
	case strings.Contains(text, "permission denied"):
		return "etcdctl role grant-permission ROLE --prefix=true readwrite PREFIX", true
	case strings.Contains(text, "user name is empty"), strings.Contains(text, "authentication"), strings.Contains(text, "auth token"):
		return "etcd://USER:PASSWORD@HOST:PORT; etcdctl user get USER", true
	}
	return "etcdctl endpoint status --cluster -w table; etcdctl alarm list", true
}

func adviseNATS(err error) (string, bool) {
	e, ok := errors.AsType[*natsstore.Error](err)
	if !ok {
		return "", false
	}
	text := strings.ToLower(err.Error()) // with the reason why there is no connection
	switch {
	case strings.Contains(text, "nobody takes $js."):
		return "jetstream {} in the configuration of the server, and a restart", true
	case strings.Contains(text, "nobody takes"), e.Code == 10059, e.Code == 10060:
		return "lockstep install, as a user who may publish to $JS.API.STREAM.CREATE.STREAM", true
	case strings.Contains(text, "jetstream not enabled"):
		return "jetstream: enabled in the account of the user, in the configuration of the server", true
	case strings.Contains(text, "permissions violation"):
		return "allow the user the subject that the error names; docs/security.md lists all", true
	case strings.Contains(text, "authorization violation"), strings.Contains(text, "authentication"), strings.Contains(text, "user credentials"):
		return "look at user, password or creds=FILE in the URL", true
	case strings.Contains(text, "maximum connections"), strings.Contains(text, "maximum account active connections"):
		return "nats server report connections; raise max_connections of the server or of the account", true
	case strings.Contains(text, "broken pipe"), strings.Contains(text, "connection reset"), strings.Contains(text, " eof"):
		return "look at the log of the server, which closes the connection: for max_connections, or a password", true
	case strings.Contains(text, "secure connection"), strings.Contains(text, "tls: first record"):
		return "use nats+tls:// if the server has TLS, else nats://", true
	case e.Code == 10023, e.Code == 10047, e.Code == 10077:
		return "nats account info; raise the storage of the account or the limits of the stream", true
	case e.Code == 10008:
		return "nats server report jetstream; start the servers that are down", true
	}
	return "", e.Server != "" && e.Permanent() || e.Code != 0
}
