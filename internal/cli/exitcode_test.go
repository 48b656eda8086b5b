package cli_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// The exit codes of docs/guides/command-line.md: 0 done, 1 failed or not found, 2 wrong usage.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.topic("orders")
	for code, lines := range map[int][]string{
		0: {
			"topic list", "topic show orders", "subscription list", "event list --from 1h --to 10m",
			"delivery list --from 2026-11-20", "batch list", "deadletter list",
			"operation list", "audit list --until 7d", "policy list", "policy show ga-2021",
			"deadletter purge --all --dry-run",
			"deadletter export --from 1d12h", "topic create parcels", "topic delete parcels --yes",
		},
		1: {
			"topic show none", "topic delete none --yes", "subscription show orders none",
			"subscription delete orders none --yes", "subscription pause orders none",
			"event show " + zeroID, "event erase --yes " + zeroID, "delivery show 7", "delivery cancel 7 --yes",
			"batch show 7",
			"deadletter show " + zeroID,
			"deadletter purge --yes " + zeroID, "deadletter redeliver " + zeroID, "deadletter cancel " + zeroID,
			"operation show " + zeroID, "policy show none",
			"policy delete none --yes", "policy delete ga-2021 --yes",
			"topic list --url http://127.0.0.1:1", "topic create x", "deadletter events orders none --from 1h",
		},
		2: {
			"topic", "topic list --loud", "topic list -o xml", "event list --limit 0", "event list --from soon",
			"event list --from 1h --to 2h", "event show 7",
			"delivery show x", "delivery list --state dead", "deadletter purge", "deadletter purge " + zeroID,
			"deadletter show x", "event erase " + zeroID, "delivery cancel 7",
			"topic delete orders", "subscription delete orders billing", "policy delete mine",
			"topic list --url orders:1",
			"policy put mine -f nowhere.json", "tail --subscription billing",
		},
	} {
		for _, line := range lines {
			r := postrider(t, h.reached(strings.Fields(line))...)
			require.Equal(t, code, r.code, "%s: %s%s", line, r.stdout, r.stderr)
			require.Equal(t, code == 0, r.stderr == "", "%s: %s", line, r.stderr)
		}
	}
}

// YAML has the members of JSON, with the same values.
func TestYAMLHasTheMembersOfJSON(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	key := h.topic("orders")
	h.subscribe("orders", "billing", "http://127.0.0.1:1/")
	// times that pass would differ
	h.manage(http.StatusOK, http.MethodPost, "/v1/topics/orders/subscriptions/billing/pause", "")
	h.publish("orders", key, order("1", 7))
	for _, line := range []string{
		"topic list", "topic show orders", "subscription show orders billing", "event list", "delivery list",
		"delivery show 1", "policy show ga-2021", "audit list",
		"policy explain ga-2021 --status 503", "subscription test-filter orders billing", "subscription pause orders billing",
	} {
		asJSON, asYAML := h.line(0, line+" -o json"), h.line(0, line+" -o yaml")
		var value any
		require.NoError(t, yaml.Unmarshal([]byte(asYAML), &value), asYAML)
		read, err := json.Marshal(value)
		require.NoError(t, err, line)
		require.JSONEq(t, steady(asJSON), steady(string(read)), line)
		require.NotContains(t, asYAML, "\u009b", "a terminal interprets it")
	}
}
