package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"postrider/web/display"
)

// apiResponse is a response of the REST API.
type apiResponse struct {
	status int
	header http.Header
	body   bytes.Buffer
}

// Header has the headers of the response.
func (r *apiResponse) Header() http.Header { return r.header }

// WriteHeader stores the first status.
func (r *apiResponse) WriteHeader(status int) {
	r.status = cmp.Or(r.status, status)
}

// Write stores a part of the body.
func (r *apiResponse) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(p)
}

// apiProblem is one error of a request.
type apiProblem struct{ Code, Target, Message string }

// apiError is a rejection by the API. Its texts may be shown.
type apiError struct {
	status        int
	Code, Message string
	Details       []apiProblem
}

// Error is the message of the API.
func (e *apiError) Error() string { return e.Message }

// HTTPStatus is the status of the response.
func (e *apiError) HTTPStatus() int { return e.status }

// request sends a request to the API in this process as the actor of ctx. body is JSON or nil; headers are pairs of
// name and value. A rejection is an *apiError. The host is the page's, because a validationUrl begins with it.
func (p *pages) request(
	ctx context.Context, c echo.Context, method, path string, body []byte, headers ...string,
) (*apiResponse, error) {
	r, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("request to the API: %w", err)
	}
	page := c.Request()
	r.Host, r.TLS, r.RemoteAddr = page.Host, page.TLS, page.RemoteAddr
	for _, name := range []string{
		echo.HeaderXForwardedProto, echo.HeaderXForwardedProtocol, echo.HeaderXForwardedSsl, echo.HeaderXUrlScheme,
	} {
		if value := page.Header.Get(name); value != "" {
			r.Header.Set(name, value)
		}
	}
	r.Header.Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response := &apiResponse{header: http.Header{}}
	p.API.ServeHTTP(response, r)
	return response, response.rejection()
}

// rejection is nil if the request succeeded.
func (r *apiResponse) rejection() error {
	if r.status < http.StatusBadRequest {
		return nil
	}
	var body struct{ Error apiError }
	if err := json.Unmarshal(r.body.Bytes(), &body); err != nil || body.Error.Message == "" {
		body.Error.Message = "the API responded with " + display.StatusText(r.status)
	}
	body.Error.status = r.status
	return &body.Error
}

// read decodes the JSON body into target.
func (r *apiResponse) read(target any) error {
	if err := json.NewDecoder(&r.body).Decode(target); err != nil {
		return fmt.Errorf("read the API's response: %w", err)
	}
	return nil
}

func apiTopic(topic string) string { return "/v1/topics/" + url.PathEscape(topic) }

func apiPolicy(name string) string { return "/v1/policies/" + url.PathEscape(name) }
