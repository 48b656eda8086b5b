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

	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/jobs/publish"
	"postrider/jobs/pull"
)

func TestResponseTo(t *testing.T) {
	t.Parallel()
	c := echo.New().NewContext(httptest.NewRequest(http.MethodGet, "/somewhere", nil), nil)
	wrapped := func(err error) error { return fmt.Errorf("an operation with secrets: %w", err) }
	for name, row := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"a rejection": {wrapped(tooLarge(1)), 413, "PayloadTooLarge"},
		"an error of Parse": {
			wrapped(&event.Error{Status: 415, Code: "UnsupportedMediaType", Index: -1, Message: "m"}), 415,
			"UnsupportedMediaType",
		},
		"not found":                     {wrapped(postgres.ErrNotFound), 404, "NotFound"},
		"a conflict":                    {wrapped(postgres.ErrConflict), 409, "ConcurrentChange"},
		"unauthorized":                  {wrapped(publish.ErrUnauthorized), 401, "Unauthorized"},
		"data that PostgreSQL rejects":  {wrapped(postgres.ErrPoison), 400, "InvalidEvent"},
		"unavailable":                   {wrapped(postgres.ErrUnavailable), 503, "ServiceUnavailable"},
		"a locked table":                {wrapped(postgres.ErrLocked), 503, "ServiceUnavailable"},
		"a slow list":                   {wrapped(postgres.ErrTooSlow), 503, "ServiceUnavailable"},
		"too many own searches":         {wrapped(&postgres.BusyError{Own: true}), 429, "TooManyRequests"},
		"too many searches":             {wrapped(&postgres.BusyError{}), 503, "ServiceUnavailable"},
		"too many receivers of a topic": {wrapped(pull.ErrTooManyReceiversOfTopic), 429, "TooManyRequests"},
		"too many receivers": {
			wrapped(fmt.Errorf("%w: %w", postgres.ErrUnavailable, pull.ErrTooManyReceivers)), 503, "ServiceUnavailable",
		},
		"a timeout":              {wrapped(context.DeadlineExceeded), 503, "ServiceUnavailable"},
		"a client that is gone":  {wrapped(context.Canceled), 503, "ServiceUnavailable"},
		"no such route":          {echo.ErrNotFound, 404, "NotFound"},
		"another router's error": {echo.ErrStatusRequestEntityTooLarge, 413, "PayloadTooLarge"},
	} {
		response := ResponseTo(row.err, c)
		require.NotNil(t, response, name)
		require.Equal(t, row.status, response.Status, name)
		require.Equal(t, row.code, response.Code, name)
		require.NotContains(t, response.Message, "secrets", name)
	}
	for name, err := range map[string]error{
		"an unknown error": errors.New("x"), "the router's own 500": echo.ErrInternalServerError,
	} {
		require.Nil(t, ResponseTo(err, c), "%s: only for the log", name)
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
