package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/query"
	"postrider/jobs"
)

// /readyz returns the reason to any client, without details.
func TestReadySaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNode(t, db, "--role", "api")
	status := func() (int, string) {
		status, text, err := call(t.Context(), http.MethodGet, n.api+"/readyz", "")
		require.NoError(t, err)
		return status, text
	}
	code, text := status()
	require.Equal(t, http.StatusOK, code, text)
	require.Contains(t, text, `"ready":true`)
	for _, lack := range []struct{ breaks, repairs, says string }{
		{
			"UPDATE postrider_internal.encryption_keys SET key_id = 'another-' || key_id",
			"UPDATE postrider_internal.encryption_keys SET key_id = replace(key_id, 'another-', '')",
			"another encryption key",
		},
		{"ALTER SCHEMA postrider_internal RENAME TO elsewhere", "ALTER SCHEMA elsewhere RENAME TO " +
			"postrider_internal", "run postrider migrate up"},
	} {
		db.exec(lack.breaks)
		eventually(t, lack.says, func() bool { code, text = status(); return code == http.StatusServiceUnavailable })
		require.Contains(t, text, lack.says)
		require.NotContains(t, text, "127.0.0.1")
		db.exec(lack.repairs)
		eventually(t, "it is ready again", func() bool { code, text = status(); return code == http.StatusOK })
	}
}

// A node that delivers has to be registered and to write heartbeats; one that does not has neither.
func TestReadyReasons(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, (&instance{}).isReady(t.Context()), "starting or stopping")
	worker, api := &instance{engine: &jobs.Engine{}}, &instance{}
	fit := query.Readiness{KeyKnown: true, PartitionsToday: true, Registered: true, Silent: 29 * time.Second}
	require.NoError(t, worker.missing(fit, 59*time.Second))
	require.NoError(t, api.missing(query.Readiness{KeyKnown: true, PartitionsToday: true}, 0))
	require.ErrorContains(t, worker.missing(fit, time.Minute),
		"deliveries are due, but this node has started no attempt for 1m0s")
	for _, row := range []struct {
		says   string
		breaks func(*query.Readiness)
		both   bool // of a node that delivers nothing, too
	}{
		{"another encryption key", func(r *query.Readiness) { r.KeyKnown = false }, true},
		{"events cannot be stored", func(r *query.Readiness) { r.Failing = "events cannot be stored" }, true},
		{"no partition for today's events", func(r *query.Readiness) { r.PartitionsToday = false }, true},
		{"not registered", func(r *query.Readiness) { r.Registered = false }, false},
		{"wrote its last heartbeat 31s ago", func(r *query.Readiness) { r.Silent = 31 * time.Second }, false},
	} {
		lacks := fit
		row.breaks(&lacks)
		require.ErrorContains(t, worker.missing(lacks, 0), row.says)
		require.Equal(t, row.both, api.missing(lacks, 0) != nil, row.says)
	}
}
