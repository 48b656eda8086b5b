package app_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/jobs/delivery"
)

// How a delivery ends is written twice, because the function costs too much for the recorder: the two are the same
// text.
func TestDeliveriesEndInOneWay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var function string
	const query = "SELECT prosrc FROM pg_proc WHERE oid = 'postrider_internal.end_deliveries'::regproc"
	require.NoError(t, b.pool.QueryRow(t.Context(), query).Scan(&function))
	function = regexp.MustCompile("--.*").ReplaceAllString(function, "")
	words := func(sql string) string { return strings.Join(strings.Fields(sql), " ") }
	require.Contains(t, words(function), words(delivery.EndsSQL())+" SELECT")
}
