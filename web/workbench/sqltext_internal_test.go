package workbench

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/internal/sqlquery"
)

func TestParameters(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string][]parameter{
		"select 1":                              {},
		"select $1":                             {{"$1", "a"}},
		"select $2":                             {{"$1", "a"}, {"$2", "b"}},
		"select $3, $1":                         {{"$1", "a"}, {"$2", "b"}, {"$3", ""}},
		"select '$2', \"$3\", $1 -- $4\n/*$5*/": {{"$1", "a"}},
		"select $$ $2 $$, $1":                   {{"$1", "a"}},
		"select 'it''s $2', $1":                 {{"$1", "a"}},
		"-- $1 = topic, $2 = event id\nselect $1, $2":          {{"topic", "a"}, {"event id", "b"}},
		"select $1\n--$1 = topic":                              {{"topic", "a"}},
		"-- about $1 = topic\nselect $1":                       {{"$1", "a"}},
		"-- $2 = unused\nselect $1":                            {{"$1", "a"}},
		"select $99999999999999999999, $101, $0 || 'no field'": {},
	} {
		got := parametersOf(sql, []string{"a", "b"})
		require.Equal(t, want, got, sql)
	}
}

func TestPlaceOfMistake(t *testing.T) {
	t.Parallel()
	const sql = "select 1,\n\té𝛿 wrong\n"
	for position, want := range map[int]mistake{
		1:  {Position: 1, Line: 1, Column: 1, Excerpt: "select 1,\n^"},
		15: {Position: 15, Line: 2, Column: 5, Excerpt: "\té𝛿 wrong\n\t   ^"},
		21: {Position: 21, Line: 3, Column: 1, Excerpt: "\n^"},
		0:  {}, 22: {}, -1: {},
	} {
		var m mistake
		m.locate(sql, position)
		require.Equal(t, want, m, position)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		err    error
		status int
		text   string
	}{
		{sqlquery.ErrBusy, http.StatusServiceUnavailable, "4 queries are running; retry when one has ended."},
		{fmt.Errorf("%w of 30s", sqlquery.ErrDeadline), http.StatusGatewayTimeout, "exceeded its time limit of 30s."},
		{sqlquery.ErrTooLarge, http.StatusBadRequest, "A row of the result is larger than 8 MiB. Select fewer"},
		{sqlquery.ErrNotConfigured, http.StatusServiceUnavailable, "Queries are not set up: run `postrider migrate up`"},
		{&sqlquery.Error{Message: "permission denied", State: "42501"}, http.StatusBadRequest, "Queries read the views"},
	} {
		m, status := mistakeOf(row.err, "select 1")
		require.Equal(t, row.status, status)
		require.Contains(t, m.Title+" "+m.Advice, row.text)
	}
	for _, err := range []error{nil, errors.New("x"), postgres.ErrUnavailable} {
		m, _ := mistakeOf(err, "select 1")
		require.Nil(t, m)
	}
}
