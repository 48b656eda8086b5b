package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file has the ids of an operation, and an operation that counts another number than expected changes nothing.
func TestBulkVerbs(t *testing.T) {
	t.Parallel()
	h := newDelivering(t)
	key := h.topic("orders")
	h.manage(201, "PUT", "/v1/topics/orders/subscriptions/billing",
		`{"endpointUrl":"http://127.0.0.1:1/","endpointValidation":"skip"}`)
	h.manage(200, "POST", "/v1/topics/orders/subscriptions/billing/pause", "")
	ids := h.deadLetters(6)
	file := filepath.Join(t.TempDir(), "ids.txt")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(ids[:4], "\n")+"\n"+ids[0]+"\n"), 0o600))
	run := h.run
	h.exec("SELECT postrider.redeliver('" + ids[0] + "')")
	require.Equal(t, "3 dead letters match.\n", run(0, "deadletter", "redeliver", "--ids-from", file, "--dry-run").stdout)
	wrong := run(1, "deadletter", "redeliver", "--ids-from", file, "--expected-count", "4")
	require.Contains(t, wrong.stderr, "expected 4, found 3; nothing was changed")
	require.Contains(t, run(0, "deadletter", "redeliver", "--ids-from", file, "--expected-count", "3").stdout,
		"done, 3 of 3 redelivered, 0 skipped, 0 failed.")
	require.Contains(t, run(0, "deadletter", "redeliver", "--again", "--ids-from", file).stdout, "4 of 4 redelivered")
	require.Contains(t, run(0, "deadletter", "purge", "--yes", "--ids-from", file).stdout, "4 of 4 purged")
	require.Equal(t, int64(2), one[int64](h, "SELECT count(*) FROM postrider.dead_letters"))

	for i := range 3 {
		h.publish("orders", key, order(fmt.Sprint(i), i))
	}
	require.Equal(t, "11 pending deliveries match.\n",
		run(0, "delivery", "cancel", "--topic", "orders", "--dry-run").stdout)
	require.Regexp(t, `, 0 of 11 retried, 0 skipped, 11 failed`,
		run(1, "delivery", "retry-now", "--topic", "orders", "--state", "pending").stdout)
	require.Regexp(t, `, 11 of 11 canceled, 0 skipped, 0 failed`, run(0, "delivery", "cancel", "--hold", "paused",
		"--yes").stdout)
	for says, args := range map[string][]string{
		"choose deliveries with one of": {"delivery", "cancel"},
		"not the id of a delivery":      {"delivery", "cancel", "--ids-from", file},
		"not both":                      {"deadletter", "purge", "--ids-from", file, "--all"},
		"are for many deliveries":       {"delivery", "cancel", "1", "--rate", "5"},
	} {
		require.Contains(t, run(2, args...).stderr, says)
	}
}
