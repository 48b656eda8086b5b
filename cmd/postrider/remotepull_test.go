package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An event subscription of pull delivery on the command line.
func pullVerbs(t *testing.T, r *remote) {
	t.Helper()
	r.run(t, 0, "topic", "create", "pulled", "--input-schema", "CloudEventSchemaV1_0")
	rejected := r.run(t, 1, "subscription", "create", "pulled", "audit", "--delivery-mode", "queue",
		"--lock-duration", "301", "--max-delivery-count", "11")
	require.Contains(t, rejected.stderr, "receiveLockDurationInSeconds: must be between 60 and 300, not 301")
	require.Contains(t, rejected.stderr, "queue.maxDeliveryCount: must be between 1 and 10")
	r.run(t, 0, "subscription", "create", "pulled", "audit", "--delivery-mode", "queue", "--lock-duration", "90",
		"--max-delivery-count", "3", "--event-time-to-live", "P1D")
	shown := words(r.run(t, 0, "subscription", "show", "pulled", "audit").stdout)
	for _, line := range []string{
		"mode Queue", "lock duration (s) 90", "delivery attempts 3", "time to live (min) 1440",
		"retry policy namespace-2023", "state Succeeded",
	} {
		require.Contains(t, shown, line)
	}
	require.NotContains(t, shown, "events per batch 1")
	require.Contains(t, words(r.run(t, 0, "subscription", "list", "pulled").stdout),
		"pulled audit pull namespace-2023 3 1440 Succeeded -")
	require.Contains(t, r.run(t, 1, "subscription", "validate", "pulled", "audit").stderr, "has no endpoint")

	const of = "subscriptions: [{topic: pulled, name: audit, deliveryConfiguration: {deliveryMode: Queue, queue: {"
	plan := func(code int, file string) string {
		return r.run(t, code, "apply", "-f", writtenFile(t, file), "--dry-run").stdout
	}
	require.Contains(t, plan(0, of+`receiveLockDurationInSeconds: 90, maxDeliveryCount: 3, eventTimeToLive: P1D}}}]`),
		"(0 to create, 0 to change, 0 to delete, 1 unchanged)")
	require.Contains(t, plan(3, of+`maxDeliveryCount: 4, eventTimeToLive: P1D}}}]`),
		"~ subscription pulled/audit\n    ~ deliveryConfiguration.queue.receiveLockDurationInSeconds: 90 → 60\n"+
			"    ~ retryPolicy.maxDeliveryAttempts: 3 → 4\n(0 to create, 1 to change")
	toPush := plan(3, "subscriptions: [{topic: pulled, name: audit, endpointUrl: '"+r.api+"/healthz'}]")
	require.Contains(t, toPush, "    ~ deliveryConfiguration.deliveryMode: \"Queue\" → \"Push\"\n")
	require.Contains(t, toPush, "    + endpointUrl: ")
	r.run(t, 0, "subscription", "update", "pulled", "audit", "--delivery-mode", "push", "--endpoint", r.api+"/healthz",
		"--endpoint-validation", "skip")
	r.run(t, 0, "subscription", "update", "pulled", "audit", "--delivery-mode", "queue", "--unset", "endpointUrl")
}
