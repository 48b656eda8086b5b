package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/jobs/endpoint"
	"postrider/jobs/export"
)

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
	e := &Engine{log: slog.New(slog.NewJSONHandler(&log, nil))}
	e.logExport(&export.Result{Export: &export.Export{}, Error: "plain"}, "the original",
		export.Exported{Pending: 1})
	require.Contains(t, log.String(), `"error":"the original","error_text":"plain"`)
}
