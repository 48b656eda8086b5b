package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/jobs/delivery"
	"postrider/jobs/endpoint"
	"postrider/jobs/export"
	"postrider/jobs/queue"
	"postrider/policy"
)

func TestLogLevels(t *testing.T) {
	t.Parallel()
	for option, want := range map[LogAttempts][2]slog.Level{ // of a delivered and of a failed attempt
		LogNone: {slog.LevelDebug, slog.LevelDebug}, LogFailed: {slog.LevelDebug, slog.LevelInfo},
		LogAll: {slog.LevelInfo, slog.LevelInfo},
	} {
		require.Equal(t, want, [2]slog.Level{option.level(policy.Delivered), option.level(policy.Retry)}, option)
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
	d := &deliverer{
		runs: &runs{log: slog.New(slog.NewJSONHandler(&log, nil))}, options: &Options{LogAttempts: LogAll},
		failures: &joberrors{},
	}
	a := &attempt{
		deliverer: d, sub: &catalog.Subscription{}, work: &queue.Work{Members: make([]queue.Member, 1)},
		rules: policy.Rules{Policy: &policy.Policy{}},
	}
	var resp endpoint.Response
	resp.Failed(&url.Error{Op: "parse", URL: "https://a:b/?code=planted", Err: errors.New("invalid port")})
	a.report(&delivery.Request{Number: 1}, policy.Verdict{}, resp, time.Time{}, false)
	var line map[string]any
	require.NoError(t, json.Unmarshal(log.Bytes(), &line))
	require.Equal(t, `parse "https://a:b/?…": invalid port`, line["error"])
	require.Equal(t, "the URL is malformed", line["error_text"])
}

// A location's URL may have credentials in its query, and errors quote URLs.
func TestExportErrorsHaveNoQuery(t *testing.T) {
	t.Parallel()
	const planted = "planted-secret"
	err := fmt.Errorf("write to azblob://dead: %w",
		&url.Error{Op: "Put", URL: "https://acct.blob.core.windows.net/dead/a%20b.json?sv=1&sig=" +
			planted, Err: errors.New("context deadline exceeded")})
	require.Contains(t, err.Error(), planted)
	require.Equal(t,
		`write to azblob://dead: Put "https://acct.blob.core.windows.net/dead/a%20b.json?…": context deadline exceeded`,
		withoutQueries(err.Error()))
	for _, text := range []string{
		"", "no space left on device?", "GET https://a/b: 403", "https://a?",
		"s3://b/c?region=x&y=" + planted + " twice https://d/e?z=" + planted,
	} {
		require.NotContains(t, withoutQueries(text), planted)
	}
	require.Equal(t, "no space left on device?", withoutQueries("no space left on device?"))
}

// The stored error of an export is plain English and has no query. The log has the original error.
func TestExportErrorsArePlain(t *testing.T) {
	t.Parallel()
	missing := &fs.PathError{Op: "openat", Path: "/mnt/dead", Err: syscall.ENOENT}
	refusal := &net.OpError{
		Op: "dial", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 443},
		Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
	}
	put := func(err error) error { return &url.Error{Op: "Put", URL: "https://acct/dead?sig=planted", Err: err} }
	for _, row := range []struct {
		want string
		err  error
	}{
		{"it was not written within 60 s", put(context.DeadlineExceeded)},
		{"/mnt/dead: no such file or directory", errors.Join(missing)},
		{"/mnt/a.json: no space left on device", &os.LinkError{New: "/mnt/a.json", Err: syscall.ENOSPC}},
		{"in plain words", fmt.Errorf("x: %w", &endpoint.PlainError{Text: "in plain words", Cause: missing})},
		{"connection refused by 10.0.0.1:443", put(refusal)},
		{"it could not be written; the log of the node has the cause", errors.New("blob: nil *planted")},
	} {
		require.Equal(t, row.want, export.ErrorText(row.err))
	}
}

func TestLogOfExportsHasTheOriginalError(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	e := &exporter{runs: &runs{log: slog.New(slog.NewJSONHandler(&log, nil))}}
	e.logExport(&export.Result{Export: &export.Export{}, Error: "plain"}, "the original", export.Exported{Pending: 1})
	require.Contains(t, log.String(), `"error":"the original","error_text":"plain"`)
}
