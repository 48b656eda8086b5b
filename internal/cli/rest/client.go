package rest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"postrider/internal/terminal"
	"postrider/internal/version"
	"postrider/server/api"
)

// ServerFlags are the flags of verbs that call the REST API.
type ServerFlags struct {
	URL    string `name:"url" help:"URL of the service. Default: http://127.0.0.1:7480 (postrider dev)." env:"POSTRIDER_URL" placeholder:"URL"`
	APIKey string `name:"api-key" help:"Key for the management API: an API key or the admin token. Default, for a service on this machine: the well-known token of postrider dev." env:"POSTRIDER_API_KEY,POSTRIDER_ADMIN_TOKEN" placeholder:"KEY"`
	CAFile string `name:"ca-file" help:"Certificate authority (PEM) of the service, beside those of the system." env:"POSTRIDER_CA_FILE" placeholder:"FILE"`
}

// IfMatchFlag is a flag of verbs that change or delete an object with a version.
type IfMatchFlag struct {
	IfMatch string `name:"if-match" help:"Change nothing unless the object has this version: etag of show -o json, or the number in it; * is any version." placeholder:"ETAG"`
}

// Headers returns the headers of the request.
func (f IfMatchFlag) Headers() []string {
	if f.IfMatch == "" {
		return nil
	}
	return []string{"If-Match", api.EntityTag(f.IfMatch)}
}

// callTimeout is longer than a response can take with a validation handshake: 15 s, or twice that if another request
// changes the event subscription.
const callTimeout = 45 * time.Second

// Client calls one server's REST API.
type Client struct {
	Base string // without a slash at its end
	Key  string // "" for none
	// Otherwise is what the user can do without a service or a key, such as "change the database"; "" for nothing.
	Otherwise string
	http      *http.Client
}

// ProvideClient gives kong the client as an argument of verbs.
func (f ServerFlags) ProvideClient() (*Client, error) { return f.Client() }

// Client returns a client with the key of the flags, or that of postrider dev for a service on this machine.
func (f ServerFlags) Client() (*Client, error) { return f.ClientForTopic("") }

// ClientForTopic is Client for requests with an access key of a topic, which need no other key.
func (f ServerFlags) ClientForTopic(accessKey string) (*Client, error) {
	c, err := f.Connect()
	if err != nil {
		return nil, err
	}
	if c.Key = f.APIKey; c.Key == "" && onThisMachine(c.Base) {
		c.Key = DevAdminToken
	}
	if c.Key == "" && accessKey == "" {
		return nil, terminal.Usagef("no key for %s: %s", c.Base, setKey)
	}
	return c, nil
}

// setKey is the advice for a missing or wrong key.
const setKey = "set POSTRIDER_API_KEY or pass --api-key; you create a key on your account page (/ui/account) or with " +
	"postrider apikey create"

// Connect is a client without a key.
func (f ServerFlags) Connect() (*Client, error) {
	base := cmp.Or(f.URL, devServer)
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" {
		return nil, terminal.Usagef("--url %q: not a URL such as https://events.example.com", f.URL)
	}
	roots, err := rootsWith(f.CAFile)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext, MaxIdleConnsPerHost: 16,
		IdleConnTimeout: 30 * time.Second,
	}
	return &Client{
		Base: strings.TrimRight(base, "/"),
		http: &http.Client{Transport: transport, Timeout: callTimeout, CheckRedirect: noRedirect},
	}, nil
}

// InProcess is a client of a handler in this process.
func InProcess(handler http.Handler) *Client {
	return &Client{Base: "http://localhost", http: &http.Client{Transport: inProcess{handler}}}
}

type inProcess struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &memory{header: http.Header{}, status: http.StatusOK}
	p.handler.ServeHTTP(w, r)
	return &http.Response{StatusCode: w.status, Header: w.header, Body: io.NopCloser(&w.Buffer), Request: r}, nil
}

// memory is a response in memory.
type memory struct {
	bytes.Buffer
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (m *memory) Header() http.Header { return m.header }

// WriteHeader implements http.ResponseWriter.
func (m *memory) WriteHeader(status int) { m.status = status }

// rootsWith returns the system's certificate authorities and those of a file. Without a file it returns nil, which
// stands for the system's: reading them took 40 % of the CPU of a verb over http.
func rootsWith(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, terminal.Usagef("--ca-file: %v", err)
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, terminal.Usagef("--ca-file %s: no certificate in it", file)
	}
	return roots, nil
}

// noRedirect follows no redirect: the key must be sent to the named server only.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func onThisMachine(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(u.Hostname())
	return err == nil && address.Unmap().IsLoopback() || strings.EqualFold(u.Hostname(), "localhost")
}

// Error is an error response of the REST API.
type Error struct {
	Status int
	Body   api.Error // its Code is "" for a response that is not the API's
}

// Error returns the message and a line for each detail. If there are several, the API's message repeats the first.
func (e *Error) Error() string {
	text, details := e.Body.Message, e.Body.Details
	if len(details) == 1 && strings.HasPrefix(text, details[0].Message) {
		return text
	}
	if len(details) > 1 && text == details[0].Message {
		text = fmt.Sprintf("the server found %d mistakes", len(details))
	}
	for i := 0; i < len(details); {
		d, times := details[i], 1
		for i+times < len(details) && details[i+times] == d {
			times++ // a handshake that fails in the same way at each try
		}
		i += times
		detail := strings.TrimSpace(strings.TrimPrefix(d.Message, d.Target))
		if d.Target != "" {
			detail = d.Target + ": " + detail
		}
		text += "\n  " + detail
		if times > 1 {
			text += fmt.Sprintf(" (%d times)", times)
		}
	}
	return text
}

// Usage reports whether the input of the verb is wrong: the API responded 400. See terminal.IsUsage.
func (e *Error) Usage() bool { return e.Status == http.StatusBadRequest }

// ErrorOf returns the API's error response in an error; its Status is 0 without a response.
func ErrorOf(err error) *Error {
	response := &Error{}
	errors.As(err, &response)
	return response
}

// IsStatus reports whether the API responded with this status.
func IsStatus(err error, status int) bool { return ErrorOf(err).Status == status }

// IsConflict reports whether the API responded 409 with this code.
func IsConflict(err error, code api.ConflictCode) bool {
	return IsStatus(err, http.StatusConflict) && ErrorOf(err).Body.Code == string(code)
}

// IsInvalid reports whether the API rejected this member of the request.
func IsInvalid(err error, target string) bool {
	return slices.ContainsFunc(ErrorOf(err).Body.Details, func(d api.ErrorDetail) bool { return d.Target == target })
}

// maxResponse limits a response: a page of 1,000 event subscriptions with long filters is a tenth of it.
const maxResponse = 64 << 20

// Raw is a body that is JSON text already.
type Raw []byte

// Call makes a management request. body and into may be nil; into is filled from the response.
func (c *Client) Call(ctx context.Context, method, path string, body, into any, headers ...string) error {
	sent, raw := body.(Raw)
	if body != nil && !raw {
		var err error
		if sent, err = terminal.EncodePlainly(body); err != nil {
			return fmt.Errorf("write the request: %w", err)
		}
	}
	if c.Key != "" {
		headers = append(headers, "Authorization", "Bearer "+c.Key)
	}
	if body != nil {
		headers = append(headers, "Content-Type", "application/json")
	}
	response, err := c.Send(ctx, method, path, sent, headers...)
	if err != nil {
		return err
	}
	err = response.Err()
	if IsStatus(err, http.StatusUnauthorized) {
		return fmt.Errorf("%w; %s%s", err, setKey, c.otherwise())
	}
	if err != nil || into == nil || len(response.body) == 0 {
		return err
	}
	if err := terminal.DecodeExactly(response.body, into); err != nil {
		return fmt.Errorf("%s %s %s: the response is not JSON of this API; check that --url names a postrider", method,
			c.Base, path)
	}
	return nil
}

// Response is a response with its whole body.
type Response struct {
	status int
	Header http.Header
	body   []byte
}

// Send makes a request; headers are pairs of name and value. It fails if there is no response.
func (c *Client) Send(ctx context.Context, method, path string, body []byte, headers ...string) (*Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.Base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("create the request: %w", err)
	}
	r.Header.Set("User-Agent", "postrider-cli/"+version.Number())
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := c.http.Do(r)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	return &Response{response.StatusCode, response.Header, raw}, nil
}

// otherwise is the end of an advice that has an alternative.
func (c *Client) otherwise() string {
	if c.Otherwise == "" {
		return ""
	}
	return "; or " + c.Otherwise
}

// unreachable adds advice to the error of a request without a response.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var trust *tls.CertificateVerificationError
	var network *net.OpError
	switch {
	case errors.As(err, &trust):
		return fmt.Errorf("%s: %w; set --ca-file to its certificate authority", c.Base, trust.Err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%s does not use TLS: use http:// in --url", c.Base)
	case errors.As(err, &network) && network.Op == "dial":
		return fmt.Errorf("cannot connect to %s (%w): check that the service is running, or set POSTRIDER_URL or pass "+
			"--url, for example https://events.example.com%s", c.Base, network.Err, c.otherwise())
	}
	return fmt.Errorf("call %s: %w", c.Base, err)
}

// Err returns nil for a status 2xx, else an *Error.
func (a *Response) Err() error {
	if a.status >= 200 && a.status < 300 {
		return nil
	}
	var body api.ErrorResponse
	if json.Unmarshal(a.body, &body) != nil || body.Error.Message == "" {
		body.Error = api.Error{Message: fmt.Sprintf("the server responded %d %s without an error of postrider: check "+
			"POSTRIDER_URL or --url, and proxies before the service", a.status, http.StatusText(a.status))}
	}
	if bytes.HasPrefix(a.body, []byte("Client sent an HTTP request to an HTTPS server")) { // net/http's text
		body.Error.Message = "the server requires TLS: use https:// in --url"
	}
	return &Error{a.status, body.Error}
}

// Object is a JSON object of the API. Members that only a newer server has are printed, too.
type Object = map[string]any

// All reads a whole list.
func (c *Client) All(ctx context.Context, path string) ([]Object, error) {
	return c.read(ctx, path, math.MaxInt)
}

// First reads the first objects of a list that match the filter, at most limit.
func (c *Client) First(ctx context.Context, path string, filter Object, limit int) ([]Object, error) {
	parameters := maps.Clone(filter)
	parameters["limit"] = min(limit, 1000)
	return c.read(ctx, QueryURL(path, parameters), limit)
}

// read reads page by page until it has most objects or the list ends.
func (c *Client) read(ctx context.Context, next string, most int) ([]Object, error) {
	list := []Object{}
	for next != "" && len(list) < most {
		var page struct {
			Value    []Object
			NextLink string
		}
		if err := c.Call(ctx, http.MethodGet, next, nil, &page); err != nil {
			return nil, err
		}
		list, next = append(list, page.Value...), page.NextLink
	}
	return list[:min(len(list), most)], nil
}

// QueryURL returns a path with query parameters.
func QueryURL(path string, parameters Object) string {
	query := url.Values{}
	for name, value := range parameters {
		query.Set(name, fmt.Sprint(value))
	}
	return path + "?" + query.Encode()
}

// TopicURL returns the path of a topic.
func TopicURL(topic string) string { return "/v1/topics/" + url.PathEscape(topic) }

// SubscriptionURL returns the path of an event subscription.
func SubscriptionURL(topic, subscription string) string {
	return TopicURL(topic) + "/subscriptions/" + url.PathEscape(subscription)
}

// ValueAt returns the value at a path in an object, such as "retryPolicy.policy"; nil if there is none.
func ValueAt(o Object, path string) any {
	var value any = o
	for name := range strings.SplitSeq(path, ".") {
		inner, ok := value.(Object)
		if !ok {
			return nil
		}
		value = inner[name]
	}
	return value
}

// PresentAt is ValueAt, with nil also for an empty text, list or object.
func PresentAt(o Object, path string) any {
	value := ValueAt(o, path)
	if v := reflect.ValueOf(value); value == "" || v.Kind() == reflect.Slice && v.Len() == 0 ||
		v.Kind() == reflect.Map && v.Len() == 0 {
		return nil
	}
	return value
}

// TextAt returns the value at a path in one line; "-" for none.
func TextAt(o Object, path string) string {
	if value := ValueAt(o, path); value != nil && value != "" {
		return terminal.Cell(value)
	}
	return "-"
}

// SetText sets a member unless the value is "".
func SetText(settings Object, name, value string) {
	if value != "" {
		settings[name] = value
	}
}

// Objects returns the objects of a list in an object.
func Objects(o Object, path string) (list []Object) {
	if list, ok := ValueAt(o, path).([]Object); ok {
		return list
	}
	values, _ := ValueAt(o, path).([]any)
	for _, value := range values {
		if one, ok := value.(Object); ok {
			list = append(list, one)
		}
	}
	return list
}
