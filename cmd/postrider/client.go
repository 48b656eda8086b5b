package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"postrider/server"
)

// serverFlags are shared by every verb that is a client of the REST API.
type serverFlags struct {
	Server string `help:"URL of the service, or the name of a server that you have logged in to. Default: the default server (postrider server list), unless a key is set; without one, http://127.0.0.1:7480, where postrider dev listens." env:"POSTRIDER_SERVER" placeholder:"URL|NAME"`
	APIKey string `name:"api-key" help:"Key for the management API: an API key or the admin token. Default: the personal key of postrider login; without one, and for a server on this machine, the well-known token of postrider dev." env:"POSTRIDER_API_KEY,POSTRIDER_ADMIN_TOKEN" placeholder:"KEY"`
	CAFile string `name:"ca-file" help:"Certificate authority (PEM) of the server, beside those of the system." env:"POSTRIDER_CA_FILE" placeholder:"FILE"`

	stored   string // name of the stored server that the key is from
	topicKey string // access key of a topic that is sent as well; "" for none
}

// ifMatchFlag is for verbs that change or delete what has a version.
type ifMatchFlag struct {
	IfMatch string `name:"if-match" help:"Only in this version, which is etag of show -o json, or the number in it; * is any. Else nothing is changed." placeholder:"ETAG"`
}

// headers are those of the request.
func (f ifMatchFlag) headers() []string {
	if f.IfMatch == "" {
		return nil
	}
	return []string{"If-Match", server.EntityTag(f.IfMatch)}
}

// callTimeout is longer than a handshake with an endpoint may keep an answer (15 s, twice under a patch that others get in the way of).
const callTimeout = 45 * time.Second

// apiClient calls one server's REST API.
type apiClient struct {
	base string // without a slash at its end
	host string
	key  string // "" for none
	// stored is the name of the stored server that the key is from; "" for a key of the flags or the environment.
	stored string
	http   *http.Client
}

// client judges the flags. A key is needed.
func (f serverFlags) client() (*apiClient, error) {
	c, err := f.keylessClient()
	if err == nil && c.key == "" {
		return nil, usagef("no key for %s: run postrider login, or set POSTRIDER_API_KEY (or POSTRIDER_ADMIN_TOKEN) or --api-key",
			c.base)
	}
	return c, err
}

// keylessClient is for what may do without a key.
func (f serverFlags) keylessClient() (*apiClient, error) {
	f, err := f.resolved()
	if err != nil {
		return nil, err
	}
	c, err := f.connect()
	if err != nil {
		return nil, err
	}
	if c.key, c.stored = f.APIKey, f.stored; c.key == "" && onThisMachine(c.host) {
		c.key = devAdminToken
	}
	return c, nil
}

// connect is a client without a key.
func (f serverFlags) connect() (*apiClient, error) {
	u, err := url.Parse(f.Server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, usagef("--server %q: not a URL such as https://events.example.com", f.Server)
	}
	transport, err := f.transport()
	if err != nil {
		return nil, err
	}
	return &apiClient{
		base: strings.TrimRight(f.Server, "/"), host: u.Hostname(),
		http: &http.Client{Transport: transport, Timeout: callTimeout, CheckRedirect: noRedirect},
	}, nil
}

func (f serverFlags) transport() (*http.Transport, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if f.CAFile != "" {
		pem, err := os.ReadFile(f.CAFile)
		if err != nil {
			return nil, usagef("--ca-file: %v", err)
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, usagef("--ca-file %s: no certificate in it", f.CAFile)
		}
	}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext, MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second,
	}, nil
}

// noRedirect: a key is shown to the server that was named, and to no other.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func onThisMachine(host string) bool {
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}

// apiError is an error answer of the REST API.
type apiError struct {
	status  int
	code    string // "" for an answer that is not the API's
	message string
	details []server.ErrorDetail
}

// Error is the message, and each of the mistakes on a line of its own. Of several, the API's message is the first.
func (e *apiError) Error() string {
	text := e.message
	if len(e.details) == 1 && strings.HasPrefix(text, e.details[0].Message) {
		return text
	}
	if len(e.details) > 1 && text == e.details[0].Message {
		text = fmt.Sprintf("the server found %d mistakes", len(e.details))
	}
	for _, d := range e.details {
		said := strings.TrimSpace(strings.TrimPrefix(d.Message, d.Target))
		if d.Target != "" {
			said = d.Target + ": " + said
		}
		text += "\n  " + said
	}
	return text
}

// isStatus reports whether the API answered with this status.
func isStatus(err error, status int) bool {
	var answer *apiError
	return errors.As(err, &answer) && answer.status == status
}

// isConflict reports whether the API answered with this code of 409.
func isConflict(err error, code server.ConflictCode) bool {
	var answer *apiError
	return errors.As(err, &answer) && answer.status == http.StatusConflict && answer.code == string(code)
}

// isMistakeIn reports whether the API rejected this member of the request.
func isMistakeIn(err error, target string) bool {
	var answer *apiError
	return errors.As(err, &answer) && slices.ContainsFunc(answer.details, func(d server.ErrorDetail) bool {
		return d.Target == target
	})
}

// maxAnswer bounds an answer: a page of 1,000 event subscriptions with long filters is a tenth of it.
const maxAnswer = 64 << 20

// call makes a management request. body and into may be nil; into is filled from the answer.
func (c *apiClient) call(ctx context.Context, method, path string, body, into any, headers ...string) error {
	var sent []byte
	if body != nil {
		var err error
		if sent, err = encodePlainly(body); err != nil {
			return fmt.Errorf("write the request: %w", err)
		}
	}
	if c.key != "" {
		headers = append(headers, "Authorization", "Bearer "+c.key)
	}
	if body != nil {
		headers = append(headers, "Content-Type", "application/json")
	}
	answer, err := c.send(ctx, method, path, sent, headers...)
	if err != nil {
		return err
	}
	if err := answer.err(); err != nil {
		switch {
		case isStatus(err, http.StatusUnauthorized) && c.stored != "":
			return fmt.Errorf("%w; log in again: postrider login %s", err, c.stored)
		case isStatus(err, http.StatusUnauthorized):
			return fmt.Errorf("%w; run postrider login, or set POSTRIDER_API_KEY, or --api-key", err)
		}
		return err
	}
	if into == nil || len(answer.body) == 0 {
		return nil
	}
	if err := decodeExactly(answer.body, into); err != nil {
		return fmt.Errorf("%s answered %s %s with what is no JSON of this API: is it a postrider?", c.base, method, path)
	}
	return nil
}

// apiAnswer is what came back.
type apiAnswer struct {
	status int
	header http.Header
	body   []byte
}

// send makes a request; headers are pairs of name and value. Its errors are those of who got no answer.
func (c *apiClient) send(ctx context.Context, method, path string, body []byte, headers ...string) (*apiAnswer, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	r.Header.Set("User-Agent", "postrider-cli/"+version())
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := c.http.Do(r)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	return &apiAnswer{response.StatusCode, response.Header, raw}, nil
}

// unreachable says what to do where there is no answer.
func (c *apiClient) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var trust *tls.CertificateVerificationError
	var refused *net.OpError
	switch {
	case errors.As(err, &trust):
		return fmt.Errorf("%s: %w; name its certificate authority with --ca-file", c.base, trust.Err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%s answers without TLS: name it with http:// in --server", c.base)
	case errors.As(err, &refused) && refused.Op == "dial":
		return fmt.Errorf("%s does not answer (%w): is the service running there? --server names another one", c.base, refused.Err)
	}
	return fmt.Errorf("call %s: %w", c.base, err)
}

// err is nil of a success.
func (a *apiAnswer) err() error {
	if a.status >= 200 && a.status < 300 {
		return nil
	}
	var answer server.ErrorAnswer
	if bytes.HasPrefix(a.body, []byte("Client sent an HTTP request to an HTTPS server")) { // as net/http has it
		return &apiError{status: a.status, message: "the server answers with TLS alone: name it with https:// in --server"}
	}
	if json.Unmarshal(a.body, &answer) != nil || answer.Error.Message == "" {
		return &apiError{status: a.status, message: fmt.Sprintf("the server answered %d %s", a.status, http.StatusText(a.status))}
	}
	return &apiError{a.status, answer.Error.Code, answer.Error.Message, answer.Error.Details}
}

// encodePlainly writes JSON without the escapes that are for HTML: text is kept as it was given.
func encodePlainly(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSpace(text.Bytes()), err
}

// decodeExactly keeps every digit of a number where into has room for any value.
func decodeExactly(raw []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	return decoder.Decode(into)
}

// object is a JSON object as the API has it: what a newer server says beyond what this program knows is printed too.
type object = map[string]any

// page is one page of a list.
type page struct {
	Value    []object `json:"value"`
	NextLink *string  `json:"nextLink"`
}

// all reads a list to its end.
func (c *apiClient) all(ctx context.Context, path string) ([]object, error) {
	list := []object{}
	for next := &path; next != nil; {
		var p page
		if err := c.call(ctx, http.MethodGet, *next, nil, &p); err != nil {
			return nil, err
		}
		list = append(list, p.Value...)
		next = p.NextLink
	}
	return list, nil
}

func topicURL(topic string) string { return "/v1/topics/" + url.PathEscape(topic) }

func subscriptionURL(topic, subscription string) string {
	return topicURL(topic) + "/subscriptions/" + url.PathEscape(subscription)
}

// valueAt is a value inside an object by its path, such as "retryPolicy.policy"; nil where there is none.
func valueAt(o object, path string) any {
	var value any = o
	for name := range strings.SplitSeq(path, ".") {
		inner, ok := value.(object)
		if !ok {
			return nil
		}
		value = inner[name]
	}
	return value
}

// textAt is it on one line of a terminal; "-" for nothing.
func textAt(o object, path string) string {
	if value := valueAt(o, path); value != nil && value != "" {
		return cell(value)
	}
	return "-"
}
