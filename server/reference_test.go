package server_test

import (
	"fmt"
	"html"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReference(t *testing.T) {
	t.Parallel()
	s := setup(t)
	response := s.send(http.MethodGet, "/openapi", "")
	require.Equal(t, http.StatusOK, response.status)
	require.Equal(t, "text/html; charset=UTF-8", response.header.Get("Content-Type"))
	require.Contains(t, response.header.Get("Content-Security-Policy"), "default-src 'none'; style-src 'sha256-")
	text := html.UnescapeString(response.body)
	for _, op := range operations(t) {
		const row = "<tr id=\"%s\">\n<td><a href=\"#%[1]s\"><b>%s</b> <code>%s</code></a></td><td>%s</td>"
		require.Contains(t, text, fmt.Sprintf(row, op.OperationID, op.method, op.template, op.Summary))
	}
	require.NotContains(t, response.body, "ZgotmplZ")
}
