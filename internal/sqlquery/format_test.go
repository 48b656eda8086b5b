package sqlquery_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/sqlquery"
)

func TestDownloads(t *testing.T) {
	t.Parallel()
	qs := setup(t, sqlquery.Options{})
	q := sqlquery.Request{SQL: `SELECT n AS "=n", CASE n WHEN -1 THEN '=1+1' WHEN 0 THEN '-x, "y"' WHEN 1 THEN E'\tx'
		END AS t, n > 0 AS b,
		jsonb_build_object('n', n) AS j, 'NaN'::numeric AS j FROM generate_series(-1, 2) n`}
	var out bytes.Buffer
	require.NoError(t, qs.runner.Download(t.Context(), q, sqlquery.NewCSV(&out)))
	require.Equal(t, `'=n,t,b,j,j
-1,'=1+1,f,"{""n"": -1}",NaN
0,"'-x, ""y""",f,"{""n"": 0}",NaN
1,'`+"\t"+`x,t,"{""n"": 1}",NaN
2,,t,"{""n"": 2}",NaN
`, out.String())
	out.Reset()
	require.NoError(t, qs.runner.Download(t.Context(), q, sqlquery.NewJSON(&out)))
	require.JSONEq(t, `[
		{"=n": -1, "t": "=1+1", "b": false, "j": {"n": -1}, "j_2": "NaN"},
		{"=n": 0, "t": "-x, \"y\"", "b": false, "j": {"n": 0}, "j_2": "NaN"},
		{"=n": 1, "t": "\tx", "b": true, "j": {"n": 1}, "j_2": "NaN"},
		{"=n": 2, "t": null, "b": true, "j": {"n": 2}, "j_2": "NaN"}]`, out.String())
	out.Reset()
	none := sqlquery.Request{SQL: "SELECT 1 WHERE false"}
	require.NoError(t, qs.runner.Download(t.Context(), none, sqlquery.NewJSON(&out)))
	require.Equal(t, "[\n]\n", out.String())
	for _, first := range []string{"=", "+", "-", "@", "\t", "\r"} {
		out.Reset()
		q := sqlquery.Request{SQL: "SELECT $1 || '1' AS t", Args: []string{first}}
		require.NoError(t, qs.runner.Download(t.Context(), q, sqlquery.NewCSV(&out)))
		require.Contains(t, out.String(), "'"+first+"1")
	}
}
