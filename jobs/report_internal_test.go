package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/jobs/delivery"
	"postrider/jobs/endpoint"
	"postrider/jobs/queue"
	"postrider/policy"
)

// The cost of a log line, and of one that is not logged.
func BenchmarkReport(b *testing.B) {
	for _, level := range []LogAttempts{LogAll, LogNone} {
		b.Run(string(level), func(b *testing.B) {
			log := slog.New(slog.NewJSONHandler(io.MultiWriter(), nil)) // formatted, but discarded
			e := &Engine{log: log, options: Options{LogAttempts: level}, parts: Parts{}}
			a := &attempt{engine: e, sub: &catalog.Subscription{Topic: "orders", Name: "billing"}, work: &queue.Work{
				Members: make([]queue.Member, 1),
			}}
			a.sub.EndpointBaseURL, a.work.Members[0].Event = "https://billing.example.com/hook",
				event.Event{ID: "b7a1c0de-0000-4000-8000-000000000000", Type: "Contoso.Orders.Placed"}
			r := delivery.Result{
				DeliveryID: 1, Number: 2, Status: 503, Outcome: policy.OutcomeBusy, Duration: 3 * time.Millisecond,
				RetryPolicy: "ga-2021", Verdict: policy.Verdict{Action: policy.Retry, At: time.Now()},
			}
			for b.Loop() {
				a.report(&r, endpoint.Response{}, time.Time{}, false)
			}
		})
	}
}

func TestLinesAreLimited(t *testing.T) {
	t.Parallel()
	var l logLimit
	now, granted := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC), 0
	for range 3 * failedLines {
		if ok, leftOut := l.take(now); ok {
			granted++
			require.Zero(t, leftOut)
		}
	}
	require.Equal(t, failedLines, granted)
	ok, leftOut := l.take(now.Add(time.Second))
	require.True(t, ok)
	require.Equal(t, 2*failedLines, leftOut)
	_, leftOut = l.take(now.Add(time.Second))
	require.Zero(t, leftOut)
}

// The log has the original error of an attempt beside the plain one, without the query of a URL.
func TestLinesHaveTheOriginalError(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	e := &Engine{log: slog.New(slog.NewJSONHandler(&log, nil)), parts: Parts{}}
	e.options.LogAttempts = LogAll
	a := &attempt{engine: e, sub: &catalog.Subscription{}, work: &queue.Work{Members: make([]queue.Member, 1)}}
	var resp endpoint.Response
	resp.Failed(&url.Error{Op: "parse", URL: "https://a:b/?code=planted", Err: errors.New("invalid port")})
	a.report(&delivery.Result{DeliveryID: 1, Number: 1, Error: resp.ErrorText}, resp, time.Time{}, false)
	var line map[string]any
	require.NoError(t, json.Unmarshal(log.Bytes(), &line))
	require.Equal(t, `parse "https://a:b/?…": invalid port`, line["error"])
	require.Equal(t, "the URL is malformed", line["error_text"])
}
