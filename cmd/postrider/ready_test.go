package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/query"
	"postrider/jobs"
)

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
		{"accepts no writes", func(r *query.Readiness) { r.ReadOnly = true }, true},
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
