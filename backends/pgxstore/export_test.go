package pgxstore

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
)

// Split is a pool whose connections for renewals lead to the server of another pool.
func Split(pool, renewals *pgxpool.Pool) sqlstore.Pool {
	return split{
		shared{pool: pool, config: pool.Config(), uses: newUses()}, shared{pool: renewals, config: renewals.Config(), uses: newUses()},
	}
}

type split struct {
	shared

	renewals shared
}

func (s split) Open(ctx context.Context) (sqlstore.Conn, error) { return s.renewals.Open(ctx) }

// Within is a pool whose connections are all the same transaction.
func Within(tx sqlstore.Executor) sqlstore.Pool { return oneTx{Executor: tx} }

type oneTx struct {
	sqlstore.Executor
	broken
}

func (o oneTx) Acquire(context.Context) (sqlstore.Conn, error) { return o, nil }
func (oneTx) Close()                                           {}
