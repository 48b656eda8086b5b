package testnode

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/jobs/export"
	"postrider/policy"
)

// Outside has an event subscription's dead letters written to a location.
func Outside(s *catalog.SubscriptionSpec) {
	s.DeadLetterDestination = &catalog.DeadLetterDestination{
		EndpointType: catalog.DeadLetterBlob, Properties: &endpointconf.DeadLetterProperties{URL: "file:///nowhere"},
	}
}

// Bury makes n dead letters of an event subscription, each after one attempt a moment ago.
func (tn *Node) Bury(t testing.TB, sub *catalog.Subscription, n int) {
	t.Helper()
	tn.Publish(t, sub.Topic, uuid.NewString()[:8], n)
	tn.Exec(t, "UPDATE postrider_internal.river_job SET state = 'pending' WHERE kind <> 'deliver'")
	d, j := tn.Fetch(t, "node-1")
	tn.Exec(t, "UPDATE postrider_internal.river_job SET state = 'available' WHERE state = 'pending'")
	for i := range d {
		r := Result(d[i], j[i], sub,
			policy.Verdict{Action: policy.DeadLetter, Reason: policy.ReasonMaxDeliveryAttemptsExceeded})
		require.NoError(t, tn.System.Recorder.Record(t.Context(), r))
	}
}

// AfterExportDelay lets the time go by until dead letters are due.
func (tn *Node) AfterExportDelay(t testing.TB) {
	t.Helper()
	tn.Exec(t, `UPDATE postrider_internal.dead_letters SET export_due_at = export_due_at - interval '5 minutes',
		    export_abandon_at = export_abandon_at - interval '5 minutes'`)
}

// ClaimExports requires that so many exports begin.
func (tn *Node) ClaimExports(t testing.TB, want int) {
	t.Helper()
	n, err := tn.System.Exports.ClaimExports(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, n)
}

// LoadExport reads the one export there is.
func (tn *Node) LoadExport(t testing.TB) (x *export.Export, job int64) {
	t.Helper()
	var id int64
	require.NoError(t, tn.Pool.QueryRow(t.Context(), "SELECT id, job_id FROM postrider_internal.exports").Scan(&id, &job))
	x, err := tn.System.Exports.LoadExport(t.Context(), id, job)
	require.NoError(t, err)
	return x, job
}

// RecordExport records what became of an export.
func (tn *Node) RecordExport(t testing.TB, r export.Result) export.Exported {
	t.Helper()
	done, err := tn.System.Exports.RecordExport(t.Context(), &r)
	require.NoError(t, err)
	return done
}
