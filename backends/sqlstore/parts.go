package sqlstore

import (
	"context"
	"crypto/md5" //nolint:gosec // it compares texts, as the database does
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A part is something that Install makes, and that Check looks for.
type part struct {
	Kind   string // table, column, index or function
	Name   string
	Detail string // parts of another program differ in it
}

// missing compares what Install makes with what is there. What is there beside it is nobody's concern.
func missing(want, got []part) []string {
	var all []string
	for _, w := range want {
		i := slices.IndexFunc(got, func(g part) bool { return g.Kind == w.Kind && g.Name == w.Name })
		switch {
		case i < 0:
			all = append(all, fmt.Sprintf("the %s %s is missing", w.Kind, w.Name))
		case w.Detail != got[i].Detail:
			all = append(all, fmt.Sprintf("the %s %s is another one", w.Kind, w.Name))
		}
	}
	return all
}

// install adds the finding about parts that are not there. A newer program has other parts, and has seen to
// it that the calls of this one, whose version is ours, work or fail.
func (r *Report) install(ours, version int, want, got []part) {
	all := missing(want, got)
	switch {
	case version > ours:
		r.find(ProblemInstall, false, "its calls may fail: use a newer version of this program", "a newer program has installed version %d; this one has version %d", version, ours)
	case len(got) == 0:
		r.find(ProblemInstall, true, "no lock can be taken: call Install once", "the tables of the locks are missing")
	case len(all) > 0:
		r.find(ProblemInstall, true, "calls fail, or do something else than this program means: call Install", "%s", listed(all))
	}
}

// listed names the first few of a list.
func listed(all []string) string {
	const most = 4
	text := strings.Join(all[:min(len(all), most)], ", ")
	if len(all) > most {
		text += fmt.Sprintf(", and %d more", len(all)-most)
	}
	return text
}

// postgresqlParts reads the tables, columns, indexes and functions that a schema makes from its text. It
// reads the form in which the files of this package are written, and no other.
func postgresqlParts(schema string) (all []part) {
	for _, m := range createTable.FindAllStringSubmatch(schema, -1) {
		all = append(all, part{"table", "lockstep." + m[1], ""})
		for line := range strings.Lines(m[2]) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " --")
			line = strings.TrimSuffix(strings.TrimSpace(line), ",")
			name, rest, _ := strings.Cut(line, " ")
			key := inParentheses.FindStringSubmatch(line)
			switch {
			case name == "PRIMARY" || name == "UNIQUE":
				all = append(all, part{"index", fmt.Sprintf("lockstep.%s (%s)", m[1], key[1]), "unique"})
			case name != "" && name != "--":
				kind, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
				all = append(all, part{"column", "lockstep." + m[1] + "." + name, typeName(kind)})
				if strings.Contains(line, " PRIMARY KEY") {
					all = append(all, part{"index", fmt.Sprintf("lockstep.%s (%s)", m[1], name), "unique"})
				}
			}
		}
	}
	for _, m := range addColumn.FindAllStringSubmatch(schema, -1) {
		all = append(all, part{"column", "lockstep." + m[1] + "." + m[2], typeName(m[3])})
	}
	for _, m := range createIndex.FindAllStringSubmatch(schema, -1) {
		all = append(all, part{"index", fmt.Sprintf("lockstep.%s (%s)", m[1], m[2]), ""})
	}
	for _, m := range createType.FindAllStringSubmatch(schema, -1) {
		for _, column := range strings.Split(m[2], ", ") {
			name, kind, _ := strings.Cut(column, " ")
			all = append(all, part{"column", "lockstep." + m[1] + "." + name, typeName(kind)})
		}
	}
	for _, m := range createFunction.FindAllStringSubmatch(schema, -1) {
		all = append(all, function(m[1], m[2], m[3], m[4]))
	}
	return all
}

var (
	createTable    = regexp.MustCompile(`(?ms)^CREATE TABLE IF NOT EXISTS lockstep\.(\w+) \(\n(.*?)^\)`)
	addColumn      = regexp.MustCompile(`ALTER TABLE lockstep\.(\w+) ADD COLUMN IF NOT EXISTS (\w+) (\w+)`)
	createIndex    = regexp.MustCompile(`(?m)^ *CREATE INDEX IF NOT EXISTS \w+ ON lockstep\.(\w+) \((.*)\);$`)
	createType     = regexp.MustCompile(`CREATE TYPE lockstep\.(\w+) AS \((.*)\);`)
	createFunction = regexp.MustCompile(`(?s)CREATE OR REPLACE FUNCTION lockstep\.(\w+)\(([^)]*)\)([^$]*) AS \$\$(.*?)\$\$`)
	inParentheses  = regexp.MustCompile(`\((.*)\)`)
)

func function(name, arguments, options, body string) part {
	var in, all []string
	defaults := 0
	for _, a := range strings.Split(arguments, ",") {
		words := strings.Fields(a)
		if len(words) == 0 {
			continue
		}
		out := words[0] == "OUT"
		if out {
			words = words[1:]
		}
		if slices.Contains(words, "DEFAULT") {
			defaults++
		}
		kind := typeName(words[1])
		all = append(all, words[0]+" "+kind)
		if !out {
			in = append(in, kind)
		}
	}
	sum := md5.Sum([]byte(body)) //nolint:gosec // see the import
	language, volatility := "plpgsql", "v"
	if strings.Contains(options, "LANGUAGE sql") {
		language = "sql"
	}
	for text, letter := range map[string]string{"IMMUTABLE": "i", "STABLE": "s"} {
		if strings.Contains(options, text) {
			volatility = letter
		}
	}
	return part{"function", fmt.Sprintf("lockstep.%s(%s)", name, strings.Join(in, ", ")),
		strings.Join([]string{language, volatility, strings.Join(all, ", "), strconv.Itoa(defaults), hex.EncodeToString(sum[:])}, "; ")}
}

// typeName is the name of a type in the catalog.
func typeName(text string) string {
	switch text {
	case "bigint":
		return "int8"
	case "int":
		return "int4"
	case "smallint":
		return "int2"
	case "boolean":
		return "bool"
	}
	return strings.TrimPrefix(text, "lockstep.")
}

// postgresqlInstalled is what is there.
type postgresqlInstalled struct {
	parts    []part
	unlogged []string // tables
	hiding   []string // tables with policies for the role
	role     string   // of the connection
	denied   []part   // whose Detail is what the role may not do with them
}

// lacks names what the role may not do with the parts that Install makes. After an Install that adds
// something, a role may have too few rights.
func (is postgresqlInstalled) lacks(want []part) (all []string) {
	for _, d := range is.denied {
		if slices.ContainsFunc(want, func(w part) bool { return w.Kind == d.Kind && w.Name == d.Name }) {
			all = append(all, d.Detail+" on "+d.Name)
		}
	}
	return all
}

func (s *PostgreSQL) installed(ctx context.Context) (is postgresqlInstalled, err error) {
	var text string
	if err := s.exec.Row(ctx, postgresqlPartsThere, nil, &is.role, &text); err != nil {
		return is, s.explain(ctx, err)
	}
	var all []struct {
		part
		Denied string
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return is, fmt.Errorf("unexpected answer about the tables: %w", err)
	}
	for _, p := range all {
		if p.Denied != "" {
			is.denied = append(is.denied, part{p.Kind, p.Name, p.Denied})
		}
		if p.Kind == "table" {
			if strings.HasPrefix(p.Detail, "u") {
				is.unlogged = append(is.unlogged, p.Name)
			}
			if strings.HasSuffix(p.Detail, " hiding") {
				is.hiding = append(is.hiding, p.Name)
			}
			p.Detail = ""
		}
		is.parts = append(is.parts, p.part)
	}
	return is, nil
}

// version is 1 if none is stored: what is there is older than the versions, or nothing is.
func (s *PostgreSQL) version(ctx context.Context, there []part) (int, error) {
	if !slices.ContainsFunc(there, func(p part) bool { return p.Name == "lockstep.version.number" }) {
		return 1, nil
	}
	var version int64
	err := s.exec.Row(ctx, "SELECT coalesce(max(number), 1)::bigint FROM lockstep.version", nil, &version)
	return int(version), s.explain(ctx, err)
}

type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// partsThere reads parts from a database, each of which is a row.
func partsThere(ctx context.Context, db queryer, query string, args ...any) (all []part, err error) {
	found, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = found.Close() }()
	for found.Next() {
		var p part
		if err := found.Scan(&p.Kind, &p.Name, &p.Detail); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, found.Err()
}

// postgresqlPartsThere reads the catalog, which every role may read. Of the table of versions a store
// reads only.
const postgresqlPartsThere = `SELECT current_user::text, coalesce(json_agg(
		json_build_object('kind', kind, 'name', 'lockstep.' || name, 'detail', detail, 'denied', denied)), '[]')::text FROM (
	SELECT 'table' AS kind, relname::text AS name,
		relpersistence::text || CASE WHEN row_security_active(c.oid) THEN ' hiding' ELSE '' END AS detail, (
			SELECT coalesce(string_agg(named, ', ' ORDER BY n), '')
			FROM unnest('{SELECT, INSERT, UPDATE, DELETE}'::text[]) WITH ORDINALITY AS k (named, n)
			WHERE NOT has_table_privilege(c.oid, named) AND (relname <> 'version' OR named = 'SELECT')) AS denied FROM pg_class AS c
		WHERE relnamespace = to_regnamespace('lockstep') AND relkind IN ('r', 'p')
	UNION ALL
	SELECT 'column', relname || '.' || attname, typname, '' FROM pg_class AS c
		JOIN pg_attribute AS a ON attrelid = c.oid JOIN pg_type AS t ON t.oid = atttypid
		WHERE relnamespace = to_regnamespace('lockstep') AND relkind IN ('r', 'p', 'c') AND attnum > 0 AND NOT attisdropped
	UNION ALL
	SELECT 'index', relname || ' (' || (
			SELECT string_agg(attname, ', ' ORDER BY n) FROM unnest(indkey) WITH ORDINALITY AS k (number, n)
			JOIN pg_attribute ON attrelid = indrelid AND attnum = number) || ')',
		CASE WHEN indisunique THEN 'unique' ELSE '' END, '' FROM pg_class AS c JOIN pg_index ON indrelid = c.oid
		WHERE relnamespace = to_regnamespace('lockstep') AND indisvalid AND indpred IS NULL
	UNION ALL
	SELECT 'function', proname || '(' || coalesce((
			SELECT string_agg(typname, ', ' ORDER BY n) FROM unnest(proargtypes) WITH ORDINALITY AS k (kind, n)
			JOIN pg_type AS t ON t.oid = kind), '') || ')',
		concat_ws('; ', lanname, provolatile, coalesce((
			SELECT string_agg(proargnames[n] || ' ' || typname, ', ' ORDER BY n)
			FROM unnest(coalesce(proallargtypes, proargtypes::oid[])) WITH ORDINALITY AS k (kind, n) JOIN pg_type AS t ON t.oid = kind), ''),
			pronargdefaults, md5(prosrc)),
		CASE WHEN has_function_privilege(p.oid, 'EXECUTE') THEN '' ELSE 'EXECUTE' END FROM pg_proc AS p JOIN pg_language AS l ON l.oid = prolang
		WHERE pronamespace = to_regnamespace('lockstep')) AS parts`
