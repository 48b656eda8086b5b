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

// apiAnswer is what the REST API says to a form.
type apiAnswer struct {
	status int
	header http.Header
	body   bytes.Buffer
}

// Header are the answer's headers, as http.ResponseWriter has them.
func (a *apiAnswer) Header() http.Header { return a.header }

// WriteHeader takes the first status that it is told.
func (a *apiAnswer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write takes more of the body.
func (a *apiAnswer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// apiProblem is one of the mistakes that the API finds in a request.
type apiProblem struct{ Code, Target, Message string }

// apiError is an answer of the API that refuses. All of its words may be shown.
type apiError struct {
	status        int
	Code, Message string
	Details       []apiProblem
}

// Error is the API's own sentence.
func (e *apiError) Error() string { return e.Message }

// HTTPStatus is the status of the response.
func (e *apiError) HTTPStatus() int { return e.status }

// ask makes a request to the API within this process, in the name of ctx's actor. body is JSON; nil is none. headers
// are pairs of name and value. What the API refuses is an *apiError.
//
// It is asked under the host that the page was asked under: a validationUrl begins with that.
func (p *pages) ask(
	ctx context.Context, c echo.Context, method, path string, body []byte, headers ...string,
) (*apiAnswer, error) {
	r, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask the API: %w", err)
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
	return answer, answer.refusal()
}

// refusal is nil where the request was done.
func (a *apiAnswer) refusal() error {
	if a.status < http.StatusBadRequest {
		return nil
	}
	var said struct{ Error apiError }
	if err := json.Unmarshal(a.body.Bytes(), &said); err != nil || said.Error.Message == "" {
		said.Error.Message = "the API answers " + display.StatusText(a.status)
	}
	said.Error.status = a.status
	return &said.Error
}

// read fills target from the answer's JSON.
func (a *apiAnswer) read(target any) error {
	if err := json.NewDecoder(io.Reader(&a.body)).Decode(target); err != nil {
		return fmt.Errorf("read the API's answer: %w", err)
	}
	return nil
}

// plainJSON writes JSON without the escapes that are for HTML.
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

// etagOf is how the API names a version.
func etagOf(version int64) string { return `"` + display.IDText(version) + `"` }
