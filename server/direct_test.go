package server_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"postrider/server"
)

// serve calls the handler without a connection, for requests that http.Client does not send. The header Content-Length
// -1 is an unknown length.
func serve(t *testing.T, s *server.Server, method, path, body string, headers ...string) response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Content-Length" {
			r.ContentLength = -1
			continue
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return response{t, w.Code, w.Header(), w.Body.String()}
}
