package server_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"postrider/server"
)

// serve asks the handler without a connection between: for requests that http.Client would not send.
// The header Content-Length -1 stands for a length that is not known.
func serve(t *testing.T, s *server.Server, method, path, body string, headers ...string) answer {
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
	return answer{t, w.Code, w.Header(), w.Body.String()}
}
