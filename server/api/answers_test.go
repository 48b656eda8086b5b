package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"postrider/event"
	"postrider/jobs/publish"
	"postrider/postgres"
)

func TestResponseTo(t *testing.T) {
	t.Parallel()
	c := echo.New().NewContext(httptest.NewRequest(http.MethodGet, "/somewhere", nil), nil)
	wrapped := func(err error) error { return fmt.Errorf("do the thing with secrets: %w", err) }
	for name, row := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"a refusal": {wrapped(tooLarge()), 413, "PayloadTooLarge"},
		"what Parse answered": {
			wrapped(&event.Error{Status: 415, Code: "UnsupportedMediaType", Index: -1, Message: "m"}), 415,
			"UnsupportedMediaType",
		},
		"not found":               {wrapped(postgres.ErrNotFound), 404, "NotFound"},
		"a conflict":              {wrapped(postgres.ErrConflict), 409, "ConcurrentChange"},
		"unauthorized":            {wrapped(publish.ErrUnauthorized), 401, "Unauthorized"},
		"data PostgreSQL refuses": {wrapped(postgres.ErrPoison), 400, "InvalidEvent"},
		"unavailable":             {wrapped(postgres.ErrUnavailable), 503, "ServiceUnavailable"},
		"a list too long":         {wrapped(postgres.ErrTooSlow), 503, "ServiceUnavailable"},
		"a time that ran out":     {wrapped(context.DeadlineExceeded), 503, "ServiceUnavailable"},
		"a caller who left":       {wrapped(context.Canceled), 503, "ServiceUnavailable"},
		"no such route":           {echo.ErrNotFound, 404, "NotFound"},
		"another router's error":  {echo.ErrStatusRequestEntityTooLarge, 413, "PayloadTooLarge"},
	} {
		answer := ResponseTo(row.err, c)
		require.NotNil(t, answer, name)
		require.Equal(t, row.status, answer.Status, name)
		require.Equal(t, row.code, answer.Code, name)
		require.NotContains(t, answer.Message, "secrets", name)
	}
	for name, err := range map[string]error{
		"an error nobody knows": errors.New("x"), "the router's own 500": echo.ErrInternalServerError,
	} {
		require.Nil(t, ResponseTo(err, c), "%s: goes to the log alone", name)
	}
}

func TestShortenKeepsCharactersWhole(t *testing.T) {
	t.Parallel()
	require.Equal(t, "short", Shorten("short"))
	long := "x"
	for len(long) < 200 {
		long += "é"
	}
	require.Equal(t, long[:127]+"...", Shorten(long))
}
