package query_test

import (
	"flag"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/docs"
	"postrider/internal/testnode"
)

var (
	benchDeliveries = flag.Int("deliveries", 100_000, "how many `deliveries` the database of BenchmarkQuestions has")
	benchJIT        = flag.String("jit", "off", "whether PostgreSQL may compile questions: `on or off`")
)

// BenchmarkQuestions is how long the questions of docs/questions.sql take, as a reader in psql asks them.
func BenchmarkQuestions(b *testing.B) {
	tn := testnode.Unchecked(b)
	pool, err := pgxpool.New(b.Context(), tn.URL)
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	require.NoError(b, testnode.FillWeek(b.Context(), pool, *benchDeliveries))
	for _, q := range docs.Questions() {
		b.Run(q.Name, func(b *testing.B) {
			for b.Loop() {
				ask(b, pool, q.SQL)
			}
		})
	}
}

func ask(b *testing.B, pool *pgxpool.Pool, question string) {
	b.Helper()
	require.NoError(b, pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(b.Context(), "SET LOCAL ROLE postrider_reader; SET LOCAL jit = "+*benchJIT); err != nil {
			return err
		}
		rows, _ := tx.Query(b.Context(), question, pgx.QueryExecModeExec) // its error is the rows'
		_, err := pgx.CollectRows(rows, pgx.RowToMap)
		return err
	}))
}
