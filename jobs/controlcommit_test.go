package jobs_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/pgdev"
)

// A commit is answered when it is on disk. With synchronous_commit = off PostgreSQL answers before, and a crash takes
// back what the publisher was told: about the last 8 KB of the log, for full pages are written at once. Kill is SIGKILL
// to the postmaster, right after the last answer.
func TestControlSynchronousCommit(t *testing.T) {
	t.Parallel()
	controlled(t, func(t *testing.T, broken bool) {
		settings := map[string]string{"shared_buffers": "32MB"}
		if broken {
			settings["synchronous_commit"], settings["wal_writer_delay"] = "off", "10s"
		}
		server, err := pgdev.Start(t.Context(), pgdev.Options{Durable: true, Settings: settings})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
		require.NoError(t, server.CreateDatabase(t.Context(), "postrider"))
		url := server.URL("postrider")
		require.NoError(t, migrate(t.Context(), url))
		b := breakable(t, url)
		l := newLedgers(t)
		e := newEndpoint(t, func(w http.ResponseWriter, r request) {
			l.accept(r)
			w.WriteHeader(http.StatusOK)
		})
		b.subscribe(t, "all", e.URL, nil)
		b.exec(t, "CHECKPOINT") // the event subscription itself is not at stake

		l.publish(t, b, controlEvents)
		require.NoError(t, server.Kill())
		require.NoError(t, server.Restart(t.Context()))

		within(t, "PostgreSQL answers", func() bool { return b.store.Reader.Ping(t.Context()) == nil })
		b.start(t, nil)
		b.settle(t)
		b.become(t, 0, "SELECT count(*) FROM postrider_internal.deliveries")
		require.Equal(t, damage{}, b.damage(t), "the tables are sound, and know nothing of what is missing")
		if !broken {
			require.Empty(t, l.compare(t).Lost)
			return
		}
		require.NotEmpty(t, l.compare(t).Lost, "the ledgers tell what the tables cannot")
	})
}
