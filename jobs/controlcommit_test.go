package jobs_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/pgdev"
	"postrider/internal/testnode"
)

// PostgreSQL responds to a commit when it is on disk. With synchronous_commit = off it responds before, and a crash
// loses commits that the publisher counts as stored: about the last 8 KB of the log, because full pages are written at
// once. The test sends SIGKILL to the postmaster right after the last response.
func TestControlSynchronousCommit(t *testing.T) {
	t.Parallel()
	controlled(t, func(t *testing.T, broken bool) {
		settings := map[string]string{"shared_buffers": "32MB"}
		if broken {
			settings["synchronous_commit"], settings["wal_writer_delay"] = "off", "10s"
			settings["bgwriter_lru_maxpages"] = "0" // a page is written after its part of the log
		}
		server, err := pgdev.Start(t.Context(), pgdev.Options{Durable: true, Settings: settings})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
		require.NoError(t, server.CreateDatabase(t.Context(), "postrider"))
		url := server.URL("postrider")
		require.NoError(t, testnode.Migrate(t.Context(), url))
		tn := breakable(t, url)
		l := newLedgers(t)
		e := newEndpoint(t, func(w http.ResponseWriter, r request) {
			l.accept(r)
			w.WriteHeader(http.StatusOK)
		})
		subscribe(t, tn, "all", e.URL, nil)
		tn.Exec(t, "CHECKPOINT") // the event subscription survives

		l.publish(t, tn, controlEvents)
		require.NoError(t, server.Kill())
		require.NoError(t, server.Restart(t.Context()))

		testnode.Within(t, "PostgreSQL responds", func() bool { return tn.System.Reader.Ping(t.Context()) == nil })
		tn.Start(t)
		settle(t, tn)
		tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.deliveries")
		require.Equal(t, damage{}, damageOf(t, tn), "the tables are sound, and know nothing of what is missing")
		if !broken {
			require.Empty(t, l.compare(t).Lost)
			return
		}
		require.NotEmpty(t, l.compare(t).Lost, "the ledgers tell what the tables cannot")
	})
}
