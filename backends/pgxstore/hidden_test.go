package pgxstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/trial"
)

// A policy, or a trigger, can keep a call from the row that is there.
func TestARowThatIsHiddenFromTheRoleIsAPermanentError(t *testing.T) {
	for name, hide := range map[string]string{
		"policies": `ALTER TABLE lockstep.lock ENABLE ROW LEVEL SECURITY;
			CREATE POLICY see ON lockstep.lock FOR SELECT USING (true); CREATE POLICY add ON lockstep.lock FOR INSERT WITH CHECK (true)`,
		"a trigger": `CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
			CREATE TRIGGER nothing BEFORE INSERT ON lockstep.lock FOR EACH ROW EXECUTE FUNCTION nothing()`,
	} {
		t.Run(name, func(t *testing.T) {
			dsn := pgtest.Start(t).DSN()
			o := outside{t, install(t, dsn)}
			o.exec("CREATE ROLE app LOGIN; " + sqlstore.PostgreSQLGrants("app") + hide)
			s := pgxstore.New(dial(t, withoutUser(dsn)+" user=app"), pgxstore.WithoutWakes())
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if r, err := s.SetNX(ctx, "k", "token", time.Second); r.OK || !backends.Permanent(err) || !strings.Contains(err.Error(), "policy") {
				t.Errorf("SetNX = %+v, %v; want a permanent error", r, err)
			}
			r, err := s.Check(trial.Patient(t))
			if err != nil {
				t.Fatal(err)
			}
			if name == "policies" {
				wantProblems(t, r.Findings, "install")
			} else {
				wantProblems(t, r.Findings)
			}
		})
	}
}
