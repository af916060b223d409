package pgxstore_test

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

type querier interface {
	QueryRow(ctx context.Context, statement string, args ...any) pgx.Row
}

func withoutUser(dsn string) string { return strings.ReplaceAll(dsn, "user=postgres ", "") }

// split splits statements that have no body.
func split(text string) (statements []string) {
	for _, s := range strings.Split(text, ";") {
		if s = strings.TrimSpace(s); s != "" {
			statements = append(statements, s)
		}
	}
	return statements
}
