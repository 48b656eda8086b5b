package policy_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"postrider/policy"

	"github.com/stretchr/testify/require"
)

const seedFile = "../migrations/00004_builtin_policies.sql"

var update = flag.Bool("update", false, "rewrite "+seedFile+" from Builtins()")

// TestSeedSQL keeps the built-in policies in the database and in Go the same. After a change of Builtins, run
//
//	go test ./policy -run TestSeedSQL -update
func TestSeedSQL(t *testing.T) {
	t.Parallel()
	want := seedSQL(policy.Builtins())
	if *update {
		require.NoError(t, os.WriteFile(seedFile, []byte(want), 0o644))
	}
	have, err := os.ReadFile(seedFile)
	require.NoError(t, err)
	require.Equal(t, want, string(have), "run: go test ./policy -run TestSeedSQL -update")
}

const seedHead = `-- +goose Up
-- The five built-in retry policies, as rows. Written by "go test ./policy -run TestSeedSQL -update" from
-- policy.Builtins(): change the policies there, where each value is explained, and not here.
`

const seedDown = `
-- +goose Down
DELETE FROM postrider_internal.retry_policy_probations
 WHERE policy IN (SELECT name FROM postrider_internal.retry_policies WHERE built_in);
DELETE FROM postrider_internal.retry_policy_cells
 WHERE policy IN (SELECT name FROM postrider_internal.retry_policies WHERE built_in);
DELETE FROM postrider_internal.retry_policies WHERE built_in;
`

func seedSQL(policies []policy.Policy) string {
	var b strings.Builder
	b.WriteString(seedHead)
	for _, p := range policies {
		fmt.Fprintf(&b, "\n-- %s: %s\n\n", p.Name, p.Source)
		writePolicy(&b, p)
		writeCells(&b, p)
		writeProbations(&b, p)
	}
	b.WriteString(seedDown)
	return b.String()
}

// writePolicy writes one value a line with its column, to be readable.
func writePolicy(b *strings.Builder, p policy.Policy) {
	b.WriteString("INSERT INTO postrider_internal.retry_policies (\n")
	columns := slices.Concat(timingColumns(p), limitColumns(p), optionColumns(p), probationColumns(p))
	line := "   "
	for i, column := range columns {
		if len(line)+len(column[0]) > 118 {
			b.WriteString(line + "\n")
			line = "   "
		}
		line += " " + column[0] + comma(i, len(columns))
	}
	b.WriteString(line + "\n) VALUES (\n")
	for i, column := range columns {
		fmt.Fprintf(b, "    %-24s -- %s\n", column[1]+comma(i, len(columns)), column[0])
	}
	b.WriteString(");\n\n")
}

func timingColumns(p policy.Policy) [][2]string {
	steps := make([]string, 0, len(p.Steps))
	for _, s := range p.Steps {
		steps = append(steps, strconv.FormatInt(int64(s/time.Second), 10)+"s")
	}
	window := "NULL"
	if p.RetryWindow > 0 {
		window = interval(p.RetryWindow)
	}
	return [][2]string{
		{"name", quote(p.Name)},
		{"built_in", strconv.FormatBool(p.BuiltIn)},
		{"source", quote(p.Source)},
		{"ack_timeout", interval(p.AckTimeout)},
		{"late_response_window", interval(p.LateResponseWindow)},
		{"basis", quote(string(p.Basis))},
		{"steps", quote("{" + strings.Join(steps, ", ") + "}")},
		{"tail", interval(p.Tail)},
		{"retry_window", window},
		{"jitter_fraction", strconv.FormatFloat(p.JitterFraction, 'g', -1, 64)},
		{"jitter_cap", interval(p.JitterCap)},
		{"expiry", quote(string(p.Expiry))},
	}
}

func limitColumns(p policy.Policy) [][2]string {
	attempts := "NULL"
	if p.DefaultMaxAttempts > 0 {
		attempts = strconv.Itoa(p.DefaultMaxAttempts)
	}
	return [][2]string{
		{"default_ttl", interval(p.DefaultTTL)},
		{"min_ttl", interval(p.MinTTL)},
		{"max_ttl", interval(p.MaxTTL)},
		{"default_max_attempts", attempts},
		{"min_max_attempts", strconv.Itoa(p.MinMaxAttempts)},
		{"max_max_attempts", strconv.Itoa(p.MaxMaxAttempts)},
	}
}

func optionColumns(p policy.Policy) [][2]string {
	return [][2]string{
		{"honor_retry_after", strconv.FormatBool(p.HonorRetryAfter)},
		{"retry_after_cap", interval(p.RetryAfterCap)},
		{"retry_transport_errors", strconv.FormatBool(p.RetryTransportErrors)},
		{"dead_letter_default", quote(p.DeadLetterDefault)},
		{"dead_letter_delay", interval(p.DeadLetterDelay)},
		{"dead_letter_export_window", interval(p.DeadLetterExportWindow)},
		{"batching", strconv.FormatBool(p.Batching)},
	}
}

func probationColumns(p policy.Policy) [][2]string {
	return [][2]string{
		{"probation_scope", quote(string(p.Probation.Scope))},
		{"probation_trigger", strconv.Itoa(p.Probation.Trigger)},
		{"probation_first", interval(p.Probation.First)},
		{"probation_max", interval(p.Probation.Max)},
		{"probation_action", quote(string(p.Probation.Action))},
	}
}

func writeCells(b *strings.Builder, p policy.Policy) {
	cells := slices.SortedFunc(slices.Values(p.Cells), func(x, y policy.Cell) int {
		return cmp.Or(
			-cmp.Compare(x.EndpointKind, y.EndpointKind),
			cmp.Compare(conditionClass(x.Condition), conditionClass(y.Condition)),
			cmp.Compare(x.Condition, y.Condition),
		)
	})
	rows := make([][]string, 0, len(cells))
	for _, c := range cells {
		rows = append(rows, []string{
			quote(p.Name), quote(string(c.EndpointKind)), quote(c.Condition), quote(string(c.Action)), interval(c.MinDelay),
		})
	}
	writeRows(b, "retry_policy_cells (policy, endpoint_kind, condition, action, min_delay)", rows)
}

// conditionClass sorts statuses first, then "other", then errors, as on the pages.
func conditionClass(condition string) int {
	switch {
	case condition == "other":
		return 1
	case condition[0] > '9':
		return 2
	default:
		return 0
	}
}

func writeProbations(b *strings.Builder, p policy.Policy) {
	rows := make([][]string, 0, len(p.Probation.ByOutcome))
	for _, outcome := range slices.Sorted(maps.Keys(p.Probation.ByOutcome)) {
		rows = append(rows, []string{quote(p.Name), quote(string(outcome)), interval(p.Probation.ByOutcome[outcome])})
	}
	if len(rows) > 0 {
		b.WriteString("\n")
		writeRows(b, "retry_policy_probations (policy, outcome, duration)", rows)
	}
}

// writeRows aligns the columns.
func writeRows(b *strings.Builder, into string, rows [][]string) {
	fmt.Fprintf(b, "INSERT INTO postrider_internal.%s VALUES\n", into)
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, value := range row {
			widths[i] = max(widths[i], len(value))
		}
	}
	for n, row := range rows {
		b.WriteString("    (")
		for i, value := range row[:len(row)-1] {
			fmt.Fprintf(b, "%-*s ", widths[i]+1, value+",")
		}
		b.WriteString(row[len(row)-1] + ")" + ending(n, len(rows)) + "\n")
	}
}

func ending(i, n int) string {
	if i == n-1 {
		return ";"
	}
	return ","
}

func comma(i, n int) string {
	if i == n-1 {
		return ""
	}
	return ","
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func interval(d time.Duration) string { return quote(plainInterval(d)) }

// plainInterval has only seconds: "1 day" is 23 or 25 hours when daylight saving time changes.
func plainInterval(d time.Duration) string {
	return strconv.FormatInt(int64(d/time.Second), 10) + " seconds"
}

func TestBuiltinsAreWholeSeconds(t *testing.T) {
	t.Parallel()
	for _, p := range policy.Builtins() {
		spans := slices.Concat(p.Steps, slices.Collect(maps.Values(p.Probation.ByOutcome)), []time.Duration{
			p.AckTimeout, p.LateResponseWindow, p.Tail, p.RetryWindow, p.JitterCap, p.RetryAfterCap, p.DefaultTTL,
			p.MinTTL, p.MaxTTL,
			p.DeadLetterDelay, p.DeadLetterExportWindow, p.Probation.First, p.Probation.Max,
		})
		for _, c := range p.Cells {
			spans = append(spans, c.MinDelay)
		}
		for _, d := range spans {
			require.Zero(t, d%time.Second, "%s: %s would lose its fraction in the seed", p.Name, d)
		}
	}
}
