package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/bounded"
	"github.com/lockstep-go/lockstep/internal/printed"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// MySQL is a store in MySQL or MariaDB:
//
//	SetNX      SELECT, which finds the key held or free; then INSERT or UPDATE of the row as it was read
//	ExpireIf   UPDATE
//	DeleteIf   UPDATE
//
// Each statement is a transaction of its own, so the connections must have autocommit, which is the
// default. Begin transactions of your own by BeginTx: one that was begun by Exec is on a connection of the
// pool that a call may get, which the store does not notice, and its rollback ends the lock.
//
// An attempt that finds the key held writes nothing. Values are kept as durably as the server keeps a
// commit: see [MySQL.Check].
//
// Times are those of the server's clock, to the microsecond. A session that sets the variable timestamp is
// refused. So all statements
// must go to one server: servers of a cluster that all take writes have several clocks. A number is the time
// of the server in microseconds, or the last number plus one if that is greater. It is kept for
// [backends.FenceRetention].
//
// Waiters poll, and there is no queue: the server tells nobody of a release, so most reservations would
// end unused.
type MySQL struct{ rows }

// NewMySQL returns a store in the database that the DSN of db names, also over sessions that have left it by
// USE. The driver may be any whose errors have a field Number or Code, as github.com/go-sql-driver/mysql. With
// its option interpolateParams=true each statement is one round trip instead of two.
func NewMySQL(db *sql.DB, opts ...Option) *MySQL {
	c := configure(mysqlName, opts)
	c.at.look(db)
	s := &MySQL{over(databasePool{db, c.at, new(seen)}, c, dialectOf("mysql", time.Microsecond, mysqlError))}
	s.dialect.atOnce = atOnce
	s.in = homeOf(db)
	s.own.prepare = mysqlBehind
	return s
}

const mysqlName = "mysql" // in texts

// home is the database with the table. A session that an application shares may be in another one, by USE.
// So all statements name it: as the DSN has it, or as the first call has found it.
type home struct{ name atomic.Pointer[string] }

// homeOf looks into the connector of github.com/go-sql-driver/mysql: see look.
func homeOf(db *sql.DB) *home {
	h := new(home)
	if db == nil {
		return h
	}
	if name := field(field(field(reflect.ValueOf(db), "connector"), "cfg"), "DBName"); name.Kind() == reflect.String && name.String() != "" {
		h.name.Store(new(name.String()))
	}
	return h
}

// find asks a connection. Without a database, its statement will fail.
func (h *home) find(ctx context.Context, on Executor) error {
	if h == nil || h.name.Load() != nil {
		return nil
	}
	var name *string
	err := on.Row(ctx, "SELECT DATABASE()", nil, &name)
	if err == nil && name != nil {
		h.name.CompareAndSwap(nil, name)
	}
	return err
}

// names puts the name of the database before the table in a statement.
func (h *home) names(statement string) string {
	if h == nil || h.name.Load() == nil {
		return statement
	}
	return strings.ReplaceAll(statement, "lockstep_lock", "`"+strings.ReplaceAll(*h.name.Load(), "`", "``")+"`.lockstep_lock")
}

// atHome is fn with the name of the database known.
func (s *rows) atHome(fn work[*databaseConn]) work[*databaseConn] {
	if s.in == nil {
		return fn
	}
	return func(ctx context.Context, c *databaseConn, kept bool) error {
		if err := s.in.find(ctx, c); err != nil {
			return err
		}
		return fn(ctx, c, kept)
	}
}

// inTheseFiles replaces what the files of this dialect have in braces.
//
// A session can set the time of its statements by the variable timestamp, and UTC_TIMESTAMP follows it.
// SYSDATE does not, but is in the time zone of the session, where an hour can come twice. So the time is
// that of UTC_TIMESTAMP, plus how long the statement has run since. If that is more than a statement
// runs, the session has set its time, and a call is refused. A call is also refused if the session takes an
// empty text for NULL (a sql_mode of MariaDB): no comparison with NULL is true.
var inTheseFiles = strings.NewReplacer(
	"{now}", mysqlNow,
	"{clock}", mysqlRun+" BETWEEN 0 AND 100000000 AND '' IS NOT NULL",
	"{server}", serverOfMySQL,
)

const (
	mysqlRun = "TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6))"
	mysqlNow = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + " + mysqlRun
)

// mysqlBehind tells which server is behind a connection.
func mysqlBehind(ctx context.Context, c *databaseConn) (server int64, err error) {
	err = c.Row(ctx, "SELECT "+serverOfMySQL, nil, &server)
	return server, err
}

// atOnce is an UPDATE of the row of a key that fails if somebody has locked the row. Its first
// argument is the key.
func atOnce(update string) string {
	// with LIMIT, MySQL does not merge it with the UPDATE, which it would refuse
	const locked = "(SELECT `key` AS own FROM lockstep_lock WHERE `key` = ? LIMIT 1 FOR UPDATE NOWAIT)"
	return strings.Replace(update, "UPDATE lockstep_lock SET", "UPDATE lockstep_lock JOIN "+locked+" AS locked ON `key` = own SET", 1)
}

// serverOfMySQL is the id of the server, and the second in which it was started: without the part that
// counts.
const serverOfMySQL = "(UUID_SHORT() >> 24)"

// MySQLSchema returns the statement that creates the table lockstep_lock. It may run again, also while locks
// are held.
func MySQLSchema() string { return script("mysql", "schema") }

// InstallMySQL runs [MySQLSchema] in the database that the DSN of db names, or changes the table of an older
// version there. Programs may call it at every start, several at once, also while locks are held. It refuses
// to replace what a newer program has installed. The user needs the rights to create and alter a table.
// Afterwards SELECT, INSERT, UPDATE and DELETE on that table are enough.
func InstallMySQL(ctx context.Context, db *sql.DB) error {
	return installing(ctx, db, mysqlName, mysqlError, func(ctx context.Context) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		var locked sql.NullInt64
		in := homeOf(db)
		const name = "CONCAT('lockstep ', LEFT(SHA2(COALESCE(?, DATABASE()), 256), 40))"
		if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK("+name+", ?)", in.name.Load(), secondsToWait(ctx)).Scan(&locked); err != nil {
			return err
		}
		if locked.Int64 != 1 {
			return errors.New("another program installs at the moment: try again")
		}
		defer func() {
			ctx, cancel := undo(ctx)
			defer cancel()
			_, _ = conn.ExecContext(ctx, "DO RELEASE_LOCK("+name+")", in.name.Load())
		}()
		return migrateMySQL(ctx, conn, in)
	})
}

// secondsToWait is how long an Install waits for another one: so long that the error which says so comes
// before the end of ctx.
func secondsToWait(ctx context.Context) int {
	const longest = 30
	if end, ends := ctx.Deadline(); ends {
		return max(0, min(longest, int(time.Until(end).Seconds())-1))
	}
	return longest
}

// migrateMySQL makes or changes the table. A change waits for transactions that use the table, and
// all calls wait behind it, so it gives up soon.
func migrateMySQL(ctx context.Context, conn *sql.Conn, in *home) error {
	if _, err := conn.ExecContext(ctx, in.names(MySQLSchema())); err != nil {
		return err
	}
	there, err := partsOfMySQL(ctx, conn, in.name.Load())
	if err != nil {
		return err
	}
	version := versionOfMySQL(there)
	if version > tablesVersion {
		return newerVersion(version)
	}
	var changes []string
	for _, m := range []struct{ part, change string }{
		{"lockstep_lock.look", "ADD COLUMN look BIGINT NOT NULL DEFAULT 0"},
		{"lockstep_lock (look)", "ADD INDEX lockstep_look (look)"},
	} {
		if !slices.ContainsFunc(there, func(p part) bool { return p.Name == m.part }) {
			changes = append(changes, m.change)
		}
	}
	if version < tablesVersion {
		changes = append(changes, fmt.Sprintf("COMMENT = '%s%d'", mysqlVersion, tablesVersion))
	}
	if len(changes) == 0 {
		return nil
	}
	var limit int64
	if err := conn.QueryRowContext(ctx, "SELECT @@SESSION.lock_wait_timeout").Scan(&limit); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "SET SESSION lock_wait_timeout = 2"); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := undo(ctx)
		defer cancel()
		_, _ = conn.ExecContext(ctx, fmt.Sprintf("SET SESSION lock_wait_timeout = %d", limit))
	}()
	_, err = conn.ExecContext(ctx, in.names("ALTER TABLE lockstep_lock ")+strings.Join(changes, ", "))
	return err
}

// mysqlVersion is what the comment of the table begins with, before its version. Whoever may use the table
// may read it.
const mysqlVersion = "lockstep "

var partsOfMySQLWanted = []part{
	{"table", "lockstep_lock", ""},
	{"column", "lockstep_lock.key", "varbinary"}, {"column", "lockstep_lock.kind", "int"}, {"column", "lockstep_lock.value", "varbinary"},
	{"column", "lockstep_lock.expires", "bigint"}, {"column", "lockstep_lock.holds", "mediumblob"}, {"column", "lockstep_lock.last", "bigint"},
	{"column", "lockstep_lock.kept", "bigint"}, {"column", "lockstep_lock.look", "bigint"},
	{"index", "lockstep_lock (key)", "unique"}, {"index", "lockstep_lock (look)", ""},
}

// partsOfMySQL are those that are there, and the comment of the table.
func partsOfMySQL(ctx context.Context, db queryer, in *string) ([]part, error) {
	return partsThere(ctx, db, `SELECT 'table', table_name, '' FROM information_schema.tables WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = 'lockstep_lock'
		UNION ALL SELECT 'comment', table_comment, '' FROM information_schema.tables WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = 'lockstep_lock'
		UNION ALL SELECT 'column', CONCAT(table_name, '.', column_name), data_type FROM information_schema.columns
			WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = 'lockstep_lock'
		UNION ALL SELECT 'index', CONCAT('lockstep_lock (', GROUP_CONCAT(column_name ORDER BY seq_in_index SEPARATOR ', '), ')'),
			IF(MAX(non_unique) = 0, 'unique', '') FROM information_schema.statistics
			WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = 'lockstep_lock' GROUP BY index_name`, in, in, in, in)
}

// versionOfMySQL is 1 for a table without a comment of ours, which is older than the versions.
func versionOfMySQL(there []part) int {
	for _, p := range there {
		if text, ok := strings.CutPrefix(p.Name, mysqlVersion); ok && p.Kind == "comment" {
			if n, err := strconv.Atoi(text); err == nil {
				return n
			}
		}
	}
	return 1
}

// Guard makes a transaction of the application depend on a lease, if both are in databases of one server. It
// is [PostgreSQL.Guard], but a renewal of the lease waits for the end of tx, too: call it as the last
// statement before Commit. If the error is one of a conflict, roll tx back and try again.
func (s *MySQL) Guard(ctx context.Context, tx Executor, lease contract.Lease) error {
	return s.guard(ctx, tx, lease)
}

// variables are those that matter here, by their names in small letters. The server leaves out those that it
// does not know.
func (s *MySQL) variables(ctx context.Context) (map[string]string, error) {
	if _, err := s.prepare(ctx, ""); err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, statement := range []string{
		`SHOW VARIABLES WHERE Variable_name IN ('version', 'server_uuid', 'hostname', 'port', 'datadir', 'read_only', 'super_read_only',
			'autocommit', 'innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'sync_binlog', 'log_bin', 'binlog_format', 'wsrep_on', 'wsrep_cluster_address', 'group_replication_group_name',
			'group_replication_single_primary_mode', 'transaction_isolation', 'tx_isolation', 'rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled',
			'rpl_semi_sync_master_timeout', 'rpl_semi_sync_source_timeout', 'rpl_semi_sync_master_wait_no_slave', 'rpl_semi_sync_source_wait_no_replica')`,
		`SHOW STATUS WHERE Variable_name IN ('Uptime', 'Slaves_connected', 'Rpl_semi_sync_master_status', 'Rpl_semi_sync_source_status',
			'Rpl_semi_sync_master_clients', 'Rpl_semi_sync_source_clients')`,
	} {
		if err := s.pairs(ctx, statement, all); err != nil {
			return nil, s.explain(ctx, err)
		}
	}
	return all, nil
}

func (s *MySQL) pairs(ctx context.Context, statement string, into map[string]string) error {
	found, err := s.db.QueryContext(ctx, statement)
	if err != nil {
		return err
	}
	defer func() { _ = found.Close() }()
	for found.Next() {
		var name, value string
		if err := found.Scan(&name, &value); err != nil {
			return err
		}
		into[strings.ToLower(name)] = value
	}
	return found.Err()
}

// Identify implements [backends.Identifier]: databases of one server are the same node.
func (s *MySQL) Identify(ctx context.Context) (_ backends.Identity, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	is, err := s.variables(ctx)
	if err != nil {
		return backends.Identity{}, err
	}
	id := backends.Identity{Server: cmp.Or(is["server_uuid"], is["hostname"]+":"+is["port"]+is["datadir"]), Role: "master"}
	if readOnly(is) {
		id.Role = "replica"
	}
	return id, nil
}

// readOnly tells whether the server takes no writes. MariaDB has more than ON and OFF.
func readOnly(is map[string]string) bool {
	return is["read_only"] != "OFF" || is["super_read_only"] == "ON"
}

// Check asks the server how it is set up, and says what each finding means. The error is not nil only if the
// server did not answer, or if its sql_mode has EMPTY_STRING_IS_NULL. A user that may not see the threads of
// others sees no replicas of MySQL.
func (s *MySQL) Check(ctx context.Context) (_ Report, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	var r Report
	is, err := s.variables(ctx)
	if err == nil {
		defer s.own.settle()
		err = s.explain(ctx, s.on(ctx, grants, func(context.Context, *databaseConn, bool) error { return nil }))
	}
	if err != nil {
		return r, fmt.Errorf("lockstep: check: %w", err)
	}
	var engine sql.NullString
	var now, dumps int64
	var slept int
	var moves, noEmpty bool
	before := time.Now()
	err = s.db.QueryRowContext(ctx, `SELECT `+mysqlNow+`, SLEEP(0.002), SYSDATE(6) > NOW(6), '' IS NULL,
		COALESCE((SELECT engine FROM information_schema.tables WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = 'lockstep_lock'), ''),
		(SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%')`, s.in.name.Load()).Scan(&now, &slept, &moves, &noEmpty, &engine, &dumps)
	if err == nil && noEmpty {
		err = errNoEmpty
	}
	if err != nil {
		return r, fmt.Errorf("lockstep: check: %w", s.explain(ctx, err))
	}
	r.RoundTrip = time.Since(before)
	r.Role, r.Version = "master", is["version"]
	if up, err := strconv.ParseInt(is["uptime"], 10, 64); err == nil {
		r.Uptime = time.Duration(up) * time.Second
	}
	replicas, _ := strconv.Atoi(is["slaves_connected"]) // MySQL has none
	r.Standbys = max(replicas, int(dumps))
	there, err := partsOfMySQL(ctx, s.db, s.in.name.Load())
	if err != nil {
		return r, fmt.Errorf("lockstep: check: %w", s.explain(ctx, err))
	}
	r.install(tablesVersion, versionOfMySQL(there), partsOfMySQLWanted, there)
	r.inMySQL(is, engine.String)
	if !moves {
		r.find(ProblemClock, true, "a session that sets the variable timestamp is not noticed, and gives a lock to two holders: remove the option",
			"the server runs with sysdate-is-now")
	}
	r.clock(now, before)
	r.checkPool(databasePool{db: s.db}, false)
	return r, nil
}

// inMySQL adds the findings about the settings of a server, and about the engine of the table.
func (r *Report) inMySQL(is map[string]string, engine string) {
	if readOnly(is) {
		r.Role = "replica"
		r.find(ProblemRole, true, "a lock can't be taken on it, and what it shows may be behind", "read_only is %s", is["read_only"])
	}
	severalClocks := "each server judges the end of a lease by its own clock: send all locks to one server, and accept the finding, or use another store"
	if is["wsrep_on"] == "ON" {
		r.find(ProblemClock, true, severalClocks, "the server is one of a Galera cluster")
	}
	if is["group_replication_group_name"] != "" && is["group_replication_single_primary_mode"] == "OFF" {
		r.find(ProblemClock, true, severalClocks, "group replication has several primaries")
	}
	if engine != "" && engine != "InnoDB" {
		r.find(ProblemPersistence, true, "a crash makes it forget or damage locks, and Guard protects nothing", "the engine of the table lockstep_lock is %s", engine)
	}
	if is["autocommit"] == "OFF" {
		r.find(ProblemTransactions, true, "nobody else would see a lock, so every call fails: switch it on in the DSN", "autocommit is OFF")
	}
	if flush := is["innodb_flush_log_at_trx_commit"]; flush != "1" && flush != "3" { // 3 is of MariaDB, and more than 1
		crash := map[bool]string{true: "a power cut", false: "a crash of the server"}[flush == "2"]
		r.find(ProblemPersistence, true, crash+" makes it forget the locks of the last second: set it to 1", "innodb_flush_log_at_trx_commit is %s", flush)
	}
	if is["innodb_doublewrite"] == "OFF" {
		r.find(ProblemPersistence, true, "a power cut can damage the table: set it to ON", "innodb_doublewrite is OFF")
	}
	if is["log_bin"] == "ON" && is["sync_binlog"] != "1" {
		r.find(ProblemPersistence, false, "after a crash a replica may not have the locks of the last moments: set it to 1", "sync_binlog is %s", is["sync_binlog"])
	}
	// A replica repeats statements at a time of its own, where a renewal may find the lease ended.
	if is["log_bin"] == "ON" && is["binlog_format"] == "STATEMENT" {
		r.find(ProblemReplicas, false, "a replica that falls behind forgets locks that are held, and a failover grants them again: set it to ROW or MIXED",
			"binlog_format is STATEMENT")
	}
	r.semiSynchronous(is)
	if name, level := first(is, "transaction_isolation", "tx_isolation"); level == "SERIALIZABLE" {
		r.find(ProblemIsolation, false, "transactions of the application wait for more rows; the store needs no more than READ COMMITTED", "%s is %s", name, level)
	}
}

// semiSynchronous adds the findings about what a commit waits for if there are replicas, or shall be: then it
// is on. They name the variables of the server: MariaDB and MySQL before 8.0.26 have others than MySQL since.
func (r *Report) semiSynchronous(is map[string]string) {
	enabled, on := first(is, "rpl_semi_sync_source_enabled", "rpl_semi_sync_master_enabled")
	name, status := first(is, "rpl_semi_sync_source_status", "rpl_semi_sync_master_status")
	_, clients := first(is, "rpl_semi_sync_source_clients", "rpl_semi_sync_master_clients")
	timeout, limit := first(is, "rpl_semi_sync_source_timeout", "rpl_semi_sync_master_timeout")
	alone, waits := first(is, "rpl_semi_sync_source_wait_no_replica", "rpl_semi_sync_master_wait_no_slave")
	none := func(name, is string) {
		r.find(ProblemReplicas, false, "a lock granted just before a failover may be granted again after it: use semi-synchronous replication",
			"it has %s, and a commit waits for none: %s is %s", printed.Count(r.Standbys, "replica"), name, is)
	}
	switch {
	case on != "ON" && r.Standbys == 0:
		return
	case on == "":
		none("the plugin rpl_semi_sync_source", "not installed")
		return
	case on != "ON":
		none(enabled, on)
		return
	case status == "ON" && (clients != "0" || waits != "OFF"):
	case clients == "0" && r.Standbys > 0:
		none(enabled, "ON, but no replica takes part")
	case clients == "0" && waits == "OFF": // MariaDB may still call it on; the last finding is about this
	default:
		r.find(ProblemReplicas, false, "a lock granted now may be granted again after a failover: find out whether replicas answer in time, and whether enough are connected",
			"a commit waits for no replica: %s is %s", name, status)
	}
	if ms, err := strconv.Atoi(limit); err == nil && time.Duration(ms)*time.Millisecond < leastPatience {
		r.find(ProblemReplicas, false, "a lock granted after that may be granted again after a failover: with a longer limit, none is granted while no replica answers",
			"a commit waits for a replica for %v: %s is %s", time.Duration(ms)*time.Millisecond, timeout, limit)
	}
	if waits == "OFF" {
		r.find(ProblemReplicas, false, "a lock granted then may be granted again after a failover: set it to ON",
			"a commit waits for nobody once no replica is connected: %s is OFF", alone)
	}
}

// first is the first variable that the server has.
func first(is map[string]string, names ...string) (name, value string) {
	for _, name := range names {
		if value, has := is[name]; has {
			return name, value
		}
	}
	return names[0], ""
}

// leastPatience is a limit for semi-synchronous replication that a failover comes before.
const leastPatience = time.Hour
