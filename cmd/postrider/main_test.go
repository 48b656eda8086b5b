package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/internal/terminal"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
)

// result is the exit code of a verb, and what it printed.
type result struct {
	code           int
	stdout, stderr string
}

// database is one that verbs of this process use.
type database struct {
	t    *testing.T
	url  string
	pool *pgxpool.Pool
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	url := testdb.New(t)
	return &database{t, url, testdb.Pool(t, url)}
}

// one reads a row of one column.
func one[T any](d *database, query string, args ...any) (value T) {
	d.t.Helper()
	require.NoError(d.t, d.pool.QueryRow(d.t.Context(), query, args...).Scan(&value), query)
	return value
}

// postrider runs a verb in this process on the database.
func (d *database) postrider(args ...string) result {
	d.t.Helper()
	return postrider(d.t, strings.NewReader(""), append(args[:len(args):len(args)], "--database-url", d.url)...)
}

// postrider runs a verb in this process.
func postrider(t *testing.T, stdin io.Reader, args ...string) result {
	t.Helper()
	var stdout, stderr strings.Builder
	code := run(t.Context(), terminal.Streams{In: stdin, Out: &stdout, Err: &stderr}, args)
	return result{code, stdout.String(), stderr.String()}
}

// words are the lines of a text with one space between their words.
func words(text string) (lines []string) {
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

// Tests that start the program are in e2e.
func TestMain(m *testing.M) { os.Exit(testdb.Run(m, testnode.Template())) }
