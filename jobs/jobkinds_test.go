package jobs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/query"
	"postrider/jobs/queue"
)

// The Jobs page can filter by every kind.
func TestJobKindsAreThoseOfTheQueue(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t, query.JobKinds(), []string{
		queue.DeliverKind, queue.BatchKind, queue.RouteKind, queue.HandshakeKind, queue.ExportKind, queue.OperationKind,
	})
}
