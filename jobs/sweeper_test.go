package jobs_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/testnode"
	"postrider/jobs"
)

// logged is a log that a test can read while it is written.
type logged struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func TestDeliveryWithoutItsJobIsRepairedAndLogged(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	sink := newEndpoint(t, respondWith(200))
	subscribe(t, tn, "all", sink.URL, nil)
	publishOne(t, tn, "lost")
	tn.Exec(t, "DELETE FROM postrider_internal.river_job")
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET time_to_live_since = time_to_live_since - interval '2 minutes', "+
		"next_attempt_at "+
		"= next_attempt_at - interval '2 minutes'")
	var log logged
	tn.Start(t, func(o *jobs.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })

	require.Equal(t, "lost", tn.Attempt(t).EventID)

	tn.BecomeRows(t, 1, "delivery_attempts", "reruns = 1")
	testnode.Within(t, "the repair is logged", func() bool {
		return strings.Contains(log.String(), "level=ERROR") &&
			strings.Contains(log.String(), "deliveries_without_job=1 jobs_without_delivery=0")
	})
	require.EqualValues(t, 1, tn.System.Maintenance.Repairs())
	tn.Become(t, 1, "SELECT consistency_repairs FROM postrider.nodes") // with the next heartbeat
}
