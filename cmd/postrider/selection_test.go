package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A list of ids from a file becomes a selection, and other verbs use the same one.
func TestSelectionsFromTheCommandLine(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNode(t, db)
	key := n.topic("orders")
	n.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/billing",
		`{"endpointUrl":"http://127.0.0.1:1/","endpointValidation":"skip"}`)
	n.manage(http.StatusOK, http.MethodPost, "/v1/topics/orders/subscriptions/billing/pause", "")
	ids := db.deadLetters(6)
	file := filepath.Join(t.TempDir(), "ids.txt")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(ids[:4], "\n")+"\n"+ids[0]+"\n"), 0o600))
	run := func(code int, args ...string) result {
		t.Helper()
		r := postrider(t, n.cliEnv(), args...)
		require.Equal(t, code, r.code, r.stderr+r.stdout)
		return r
	}
	db.exec("SELECT postrider.redeliver('" + ids[0] + "')")
	counted := run(0, "deadletter", "redeliver", "--ids-from", file, "--dry-run")
	require.Regexp(t, `(?m)^3 +orders +billing +MaxDeliveryAttemptsExceeded`, counted.stdout)
	require.Regexp(t, `(?m)^1 +orders .* it was redelivered before$`, counted.stdout)
	selection := regexp.MustCompile(`^Selection (\S+): 4 dead letters\n$`).FindStringSubmatch(counted.stderr)
	require.NotNil(t, selection, counted.stderr)
	done := run(0, "deadletter", "redeliver", "--selection", selection[1]).stdout
	operation := regexp.MustCompile(`^Operation (\S+): done, 3 of 4 redelivered, 1 skipped, 0 failed.\n$`).
		FindStringSubmatch(done)
	require.NotNil(t, operation, done)
	require.Regexp(t, `(?m)^1 +`+ids[0]+` +- +skipped +redelivered +it was redelivered before$`,
		run(0, "operation", "results", operation[1]).stdout)
	require.Contains(t, run(0, "deadletter", "redeliver", "--again", "--selection", selection[1]).stdout,
		"4 of 4 redelivered")
	require.Equal(t, 4, strings.Count(run(0, "deadletter", "export", "--selection", selection[1]).stdout, "\n"))
	require.Contains(t, run(0, "deadletter", "purge", "--yes", "--selection", selection[1]).stdout, "4 of 4 purged")
	require.Equal(t, int64(2), one[int64](db, "SELECT count(*) FROM postrider.dead_letters"))

	for i := range 3 {
		n.publish("orders", key, order(fmt.Sprint(i), i))
	}
	require.Regexp(t, `, 0 of 11 retried, 0 skipped, 11 failed`,
		run(1, "delivery", "retry-now", "--topic", "orders", "--state", "pending").stdout)
	require.Regexp(t, `, 11 of 11 canceled, 0 skipped, 0 failed`, run(0, "delivery", "cancel", "--hold", "paused").stdout)
	for says, args := range map[string][]string{
		"choose deliveries with one of": {"delivery", "cancel"},
		"not the id of a delivery":      {"delivery", "cancel", "--ids-from", file},
		"not both":                      {"deadletter", "purge", "--selection", selection[1], "--all"},
		"are for many deliveries":       {"delivery", "cancel", "1", "--rate", "5"},
		"either --ids-from or":          {"deadletter", "export", "--selection", selection[1], "--ids-from", file},
	} {
		require.Contains(t, run(2, args...).stderr, says)
	}
}
