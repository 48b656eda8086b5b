package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"postrider/web/display"
)

// apiAnswer is the REST API's response to a form.
type apiAnswer struct {
	status int
	header http.Header
	body   bytes.Buffer
}

// Header has the headers of the response.
func (a *apiAnswer) Header() http.Header { return a.header }

// WriteHeader stores the first status.
func (a *apiAnswer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write stores a part of the body.
func (a *apiAnswer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// apiProblem is one of the errors in a request.
type apiProblem struct{ Code, Target, Message string }

// apiError is a rejection by the API. All of its texts may be shown.
type apiError struct {
	status        int
	Code, Message string
	Details       []apiProblem
}

// Error is the message of the API.
func (e *apiError) Error() string { return e.Message }

// HTTPStatus is the status of the response.
func (e *apiError) HTTPStatus() int { return e.status }

// ask sends a request to the API within this process, as ctx's actor. body is JSON; nil is none. headers are pairs of
// name and value. A rejection is an *apiError. The request has the host of the page's: a validationUrl begins with it.
func (p *pages) ask(
	ctx context.Context, c echo.Context, method, path string, body []byte, headers ...string,
) (*apiAnswer, error) {
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
	answer := &apiAnswer{header: http.Header{}}
	p.api.ServeHTTP(answer, r)
	return answer, answer.rejection()
}

// rejection is nil if the request succeeded.
func (a *apiAnswer) rejection() error {
	if a.status < http.StatusBadRequest {
		return nil
	}
	var said struct{ Error apiError }
	if err := json.Unmarshal(a.body.Bytes(), &said); err != nil || said.Error.Message == "" {
		said.Error.Message = "the API responds with " + display.StatusText(a.status)
	}
	said.Error.status = a.status
	return &said.Error
}

// read decodes the JSON of the response into target.
func (a *apiAnswer) read(target any) error {
	if err := json.NewDecoder(io.Reader(&a.body)).Decode(target); err != nil {
		return fmt.Errorf("read the API's response: %w", err)
	}
	return nil
}

// plainJSON writes JSON without escapes for HTML.
func plainJSON(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSpace(text.Bytes()), err
}

func apiTopic(topic string) string { return "/v1/topics/" + url.PathEscape(topic) }

func apiSubscription(topic, name string) string {
	return apiTopic(topic) + "/subscriptions/" + url.PathEscape(name)
}

func apiPolicy(name string) string { return "/v1/policies/" + url.PathEscape(name) }
