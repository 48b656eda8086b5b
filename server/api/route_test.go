package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"
)

type thingRequest struct {
	PageParams
	ID    int64      `path:"id"`
	Kind  *string    `query:"kind" enum:"large,small"`
	Exact *bool      `query:"exact"`
	From  *time.Time `query:"from"`
	Name  string     `query:"name"`
	Trace string     `header:"X-Trace"`
	Body  struct {
		Total json.Number `json:"total"`
		Lines []struct {
			Text string `json:"text"`
		} `json:"lines"`
	}
}

// call sends a request to a route that returns what it has read.
func call(t *testing.T, target, body string, header http.Header) (thingRequest, *RejectionError) {
	t.Helper()
	var read thingRequest
	route := Handle("readThing", func(_ context.Context, r *thingRequest) (*NoContent, error) {
		read = *r
		return &NoContent{}, nil
	})
	e := echo.New()
	var failed error
	e.HTTPErrorHandler = func(err error, _ echo.Context) { failed = err }
	e.POST("/things/:id", route.Handle)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(body))
	r.Header = header
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	if failed == nil {
		require.Equal(t, http.StatusNoContent, w.Code)
		return read, nil
	}
	var rejected *RejectionError
	require.ErrorAs(t, failed, &rejected)
	return read, rejected
}

func TestRoutesReadRequests(t *testing.T) {
	t.Parallel()
	read, rejected := call(t, "/things/7?kind=small&exact=true&from=2026-11-20T09:30:00Z&name=&limit=3",
		`{"total":12345678901234567890.10,"lines":[{"text":"a"}]}`, http.Header{"X-Trace": {"t1"}})
	require.Nil(t, rejected)
	require.Equal(t, int64(7), read.ID)
	require.Equal(t, "small", *read.Kind)
	require.True(t, *read.Exact)
	require.Equal(t, time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC), *read.From)
	require.Equal(t, "t1", read.Trace)
	require.Equal(t, "12345678901234567890.10", read.Body.Total.String(), "numbers stay exact")
	require.Equal(t, "a", read.Body.Lines[0].Text)
	require.Equal(t, "exact=true&from=2026-11-20T09%3A30%3A00Z&kind=small&limit=3", queryOf(&read).Encode())

	read, rejected = call(t, "/things/7", "", nil)
	require.Nil(t, rejected)
	require.Equal(t, 100, read.Limit)
	require.Nil(t, read.Kind)
}

func TestRoutesRejectAllMistakesAtOnce(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		target, body string
		want         []string
	}{
		"parameters": {
			"/things/x?limit=0&kind=Large&exact=maybe&from=today&name=%00", "",
			[]string{
				"limit must be between 1 and 1000, not 0", `id must be an integer, not "x"`,
				`kind must be one of large, small, not "Large"`, `exact must be true or false, not "maybe"`,
				`from must be an RFC 3339 time, such as 2026-11-20T09:30:00Z, not "today"`,
				"name must be UTF-8 without the character 0",
			},
		},
		"unknown parameters": {
			"/things/7?knd=small&Exact=true", "",
			[]string{
				"Exact is not a query parameter of this operation (did you mean exact?); its parameters are: " +
					"cursor, exact, from, kind, limit, name",
				"knd is not a query parameter of this operation (did you mean kind?); its parameters are: " +
					"cursor, exact, from, kind, limit, name",
			},
		},
		"a parameter twice": {"/things/7?kind=small&kind=large", "", []string{"kind must be given once, not 2 times"}},
		"no number": {
			"/things/7?limit=many", "", []string{`limit must be an integer between 1 and 1000, not "many"`},
		},
		"members": {
			"/things/7", `{"Total":1,"total":1,"total":2,"lines":[{"text":"a"},{"txt":"b"}],"extra":null}`,
			[]string{
				"Total is not a member; the members are: lines, total", "total appears twice",
				"lines[1].txt is not a member; the members are: text", "extra is not a member; the members are: lines, total",
			},
		},
	} {
		_, rejected := call(t, row.target, row.body, nil)
		require.NotNil(t, rejected, name)
		require.Equal(t, http.StatusBadRequest, rejected.Status, name)
		var messages []string
		for _, d := range rejected.Details {
			messages = append(messages, d.Message)
		}
		require.Equal(t, row.want, messages, name)
	}
	_, rejected := call(t, "/things/7?kind=%zz", "", nil)
	require.NotNil(t, rejected)
	require.Equal(t, "the query string is malformed: separate parameters with &, and percent-encode their values",
		rejected.Message)
}
