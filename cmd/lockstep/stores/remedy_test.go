package stores

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
)

// A finding without something to type is of little use. The kinds of findings are read from the source
// of each store, so a new one needs a remedy.
func TestEveryFindingHasARemedy(t *testing.T) {
	for folder, remedies := range map[string][]func(backends.Finding) string{
		"redisstore": {remedyRedis},
		"sqlstore":   {remedyPostgreSQL, remedyMySQL, remedySQLite},
		"etcd":       {remedyEtcd},
		"natsstore":  {remedyNATS},
	} {
		problems := problemsIn(t, "../../../backends/"+folder+"/check.go")
		if len(problems) < 5 {
			t.Errorf("%s has the problems %v only", folder, problems)
		}
		for _, problem := range problems {
			var found bool
			for _, remedy := range remedies {
				text := remedy(backends.Finding{Problem: problem, Detail: "something"})
				found = found || text != ""
			}
			if !found {
				t.Errorf("%s: nothing to type against %s", folder, problem)
			}
		}
	}
}

// The command has connections enough, but a program may print what it has found.
func TestEveryDatabaseHasARemedyForASmallPool(t *testing.T) {
	for name, remedy := range map[string]func(backends.Finding) string{
		"PostgreSQL": remedyPostgreSQL, "MySQL": remedyMySQL, "SQLite": remedySQLite,
	} {
		if text := remedy(backends.Finding{Problem: sqlstore.ProblemPool}); !strings.Contains(text, "3") {
			t.Errorf("%s: %q; want how to have 3 connections", name, text)
		}
	}
}

// The variables of MySQL and MariaDB have several names. A remedy has those of the server that was asked.
func TestRemediesOfMySQLNameTheVariablesOfTheServer(t *testing.T) {
	none := "it has 2 replicas, and a commit waits for none: "
	for detail, want := range map[string]string{
		none + "rpl_semi_sync_source_enabled is OFF":                                                          "SET GLOBAL rpl_semi_sync_source_enabled = ON",
		none + "rpl_semi_sync_master_enabled is OFF":                                                          "SET GLOBAL rpl_semi_sync_master_enabled = ON",
		none + "the plugin rpl_semi_sync_source is not installed":                                             "INSTALL PLUGIN rpl_semi_sync_source",
		none + "rpl_semi_sync_source_enabled is ON, but no replica takes part":                                "SET GLOBAL rpl_semi_sync_replica_enabled = ON",
		none + "rpl_semi_sync_master_enabled is ON, but no replica takes part":                                "SET GLOBAL rpl_semi_sync_slave_enabled = ON",
		"a commit waits for no replica: rpl_semi_sync_source_status is OFF":                                   "on each replica mysql -e \"SHOW REPLICA STATUS\\G\"",
		"a commit waits for a replica for 10s: rpl_semi_sync_source_timeout is 10000":                         "SET GLOBAL rpl_semi_sync_source_timeout = 3600000",
		"a commit waits for nobody once no replica is connected: rpl_semi_sync_source_wait_no_replica is OFF": "SET GLOBAL rpl_semi_sync_source_wait_no_replica = ON",
	} {
		if got := remedyMySQL(backends.Finding{Problem: sqlstore.ProblemReplicas, Detail: detail}); !strings.Contains(got, want) {
			t.Errorf("%s: %s; want %s", detail, got, want)
		}
	}
	if got := remedyMySQL(backends.Finding{Problem: sqlstore.ProblemIsolation, Detail: "transaction_isolation is SERIALIZABLE"}); !strings.Contains(got, "GLOBAL transaction_isolation =") {
		t.Errorf("isolation: %s", got)
	}
}

// problemsIn are the values of the constants Problem….
func problemsIn(t *testing.T, path string) (all []backends.Problem) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, spec := range g.Specs {
			v := spec.(*ast.ValueSpec)
			if !strings.HasPrefix(v.Names[0].Name, "Problem") {
				continue
			}
			value, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, backends.Problem(value))
		}
	}
	return all
}
