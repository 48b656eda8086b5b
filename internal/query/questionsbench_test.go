package query_test

import (
	"flag"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/docs"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/migrations"
)

var deliveries = flag.Int("deliveries", 100_000, "how many `deliveries` the database of BenchmarkQuestions has")

// BenchmarkQuestions is how long the questions of docs/questions.sql take, as `postrider sql` sends them.
func BenchmarkQuestions(b *testing.B) {
	pool, err := pgxpool.New(b.Context(), testdb.Clone(b))
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	require.NoError(b, testnode.FillWeek(b.Context(), pool, *deliveries))
	for _, q := range docs.Questions() {
		b.Run(q.Name, func(b *testing.B) {
			rows := 0
			for b.Loop() {
				rows = runQuestion(b, pool, q.SQL)
			}
			b.ReportMetric(float64(rows), "rows")
		})
	}
}

func runQuestion(b *testing.B, pool *pgxpool.Pool, statement string) (rows int) {
	b.Helper()
	require.NoError(b, pgx.BeginTxFunc(b.Context(), pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(b.Context(), "SET LOCAL ROLE "+migrations.ReaderRole+"; SET LOCAL jit = off"); err != nil {
			return err
		}
		result, err := tx.Query(b.Context(), statement, pgx.QueryExecModeExec)
		if err != nil {
			return err
		}
		all, err := pgx.CollectRows(result, pgx.RowToMap)
		rows = len(all)
		return err
	}))
	return rows
}
