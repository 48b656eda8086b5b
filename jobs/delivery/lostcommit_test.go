package delivery_test

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs/delivery"
	"postrider/policy"
)

// losing is a connection that is lost once, with what it reads next.
type losing struct {
	net.Conn
	lost *atomic.Pointer[func()] // is called before the connection is closed
}

// Read implements net.Conn.
func (c losing) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if before := c.lost.Swap(nil); before != nil {
		(*before)()
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// If the connection is lost at COMMIT, a result was perhaps recorded. The next try finds its job row gone, which is not
// the loss of the job to another node.
func TestResultsWhoseCommitWasLostAreRecorded(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]policy.Verdict{
		"batch": {Action: policy.Delivered}, "hold": {Action: delivery.Hold, Reason: catalog.HoldRateLimited},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn, sub := testnode.BatchingOrders(t, 2, 64)
			var lost atomic.Pointer[func()]
			config := tn.Pool.Config()
			config.MaxConns = 1
			config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
			dial := config.ConnConfig.DialFunc
			config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := dial(ctx, network, address)
				return losing{conn, &lost}, err
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			require.NoError(t, err)
			defer pool.Close()
			parts := tn.System.Recorder.RecorderParts
			parts.DB = postgres.NewDB(pool)
			r := delivery.NewRecorder(parts)
			ctx, stop := context.WithCancel(t.Context())
			stopped := make(chan struct{})
			go func() { defer close(stopped); r.Run(ctx) }()
			defer func() { stop(); <-stopped }()

			tn.Publish(t, "orders", "e", 4)
			for i, batch := range tn.CutAll(t, sub) {
				if i == 1 { // the first one has prepared the statements: one round trip
					committed := func() {
						tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.river_job WHERE id = $1", batch.Job.JobID)
					}
					lost.Store(&committed)
				}
				require.NoError(t, r.Record(t.Context(), testnode.BatchResult(batch, sub, verdict)))
			}
			require.Nil(t, lost.Load())
			require.EqualValues(t, 1, r.RecorderCounters().Failures)
			require.Equal(t, 2, tn.Recorded(t, ""), "each once")
		})
	}
}
