package jobs_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/jobs"
)

// book is a log that a test reads while it is written.
type book struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// attempts returns the log lines of attempts.
func (b *book) attempts(t *testing.T) (lines []map[string]any) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for scan := bufio.NewScanner(strings.NewReader(b.text.String())); scan.Scan(); {
		var line map[string]any
		require.NoError(t, json.Unmarshal(scan.Bytes(), &line))
		if line["msg"] == "delivery attempted" {
			lines = append(lines, line)
		}
	}
	return lines
}

// twice rejects the first request and accepts the second.
func twice(t *testing.T) string {
	t.Helper()
	var once sync.Once
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		once.Do(func() { w.WriteHeader(http.StatusServiceUnavailable) })
	}))
	t.Cleanup(e.Close)
	return e.URL
}

func TestAttemptsAreLogged(t *testing.T) {
	t.Parallel()
	for level, want := range map[jobs.LogAttempts]int{jobs.LogNone: 0, jobs.LogFailed: 1, jobs.LogAll: 2} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			tn, log := setup(t), &book{}
			url := twice(t)
			subscribe(t, tn, "billing", url+"?code=planted-secret", nil)
			tn.Start(t, func(o *jobs.Options) { o.Logger, o.LogAttempts = slog.New(slog.NewJSONHandler(log, nil)), level })
			id := "e\u202e1\x1b[31m" + strings.Repeat("x", 300)
			body, err := json.Marshal(map[string]any{
				"id": id, "subject": "s", "eventType": "test", "eventTime": "2026-01-01T00:00:00Z", "data": 1,
			})
			require.NoError(t, err)
			publishBody(t, tn, "application/json", "["+string(body)+"]")
			require.Equal(t, 503, tn.Attempt(t).Result.Status)
			require.Equal(t, 1, travel(t, tn))
			require.Equal(t, 200, tn.Attempt(t).Result.Status)

			lines := log.attempts(t)
			require.Len(t, lines, want)
			require.NotContains(t, log.text.String(), "planted-secret")
			if want == 0 {
				return
			}
			failed := lines[0]
			safe, _ := failed["event_id"].(string)
			require.Equal(t, "e\ufffd1\ufffd[31m"+strings.Repeat("x", 248)+"…", safe)
			at, err := time.Parse(time.RFC3339Nano, failed["next_attempt_at"].(string))
			require.NoError(t, err)
			require.WithinDuration(t, time.Now(), at, time.Minute)
			require.Positive(t, failed["duration_ms"])
			require.Positive(t, failed["first_byte_ms"])
			for name, value := range map[string]any{
				"level": "INFO", "topic": topicName, "subscription": "billing", "event_type": "test", "number": 1.0, "reruns": 0.0,
				"late": false, "endpoint": url,
				"outcome": "Busy", "status": 503.0, "retry_policy": "ga-2021", "verdict": "retry", "node": "node-1",
			} {
				require.Equal(t, value, failed[name], name)
			}
			require.Contains(t, failed["why"], "503")
			require.Positive(t, failed["delivery_id"])
		})
	}
}

// A batch has one line, with its first events.
func TestBatchesAreLoggedOnce(t *testing.T) {
	t.Parallel()
	tn, log := setup(t), &book{}
	subscribe(t, tn, "billing", twice(t), func(s *catalog.SubscriptionSpec) { most := 20; s.MaxEventsPerBatch = &most })
	events := make([]string, 12)
	for i := range events {
		events[i] = eventGridBody("e"+string(rune('a'+i)), "{}")
	}
	publishBody(t, tn, "application/json", "["+strings.Join(events, ",")+"]")
	tn.Start(t, func(o *jobs.Options) { o.Logger = slog.New(slog.NewJSONHandler(log, nil)) })
	require.Equal(t, 12, tn.Attempt(t).Events)
	lines := log.attempts(t)
	require.Len(t, lines, 1)
	require.Equal(t, 12.0, lines[0]["events"])
	require.Len(t, lines[0]["event_ids"], 10)
	require.Positive(t, lines[0]["batch_id"])
	require.NotContains(t, lines[0], "delivery_id")
}
