package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/catalog"
	"postrider/event"
	"postrider/policy"
	"postrider/policy/filter"
	"postrider/query"
	"postrider/server/auth"
	"postrider/server/management"
	"postrider/server/openapi"
)

// Options of a Server. Parts and AdminToken are required.
type Options struct {
	// Parts is what the API works with.
	Parts management.Parts
	// AdminToken is what administrators send as a bearer token; it also publishes to every topic.
	AdminToken string
	// AllowCIDR are the address ranges that endpoints may be in although they are refused by default, such as 10.0.0.0/8.
	AllowCIDR []netip.Prefix
	// AllowHTTP lets endpoints at public addresses have http URLs. Those in AllowCIDR always may.
	AllowHTTP bool
	// FilterLimits bounds the filter of an event subscription; zero for policy.DefaultFilterLimits.
	FilterLimits filter.Limits
	// HeaderLimits bounds the custom headers of an event subscription; zero for policy.DefaultHeaderLimits.
	HeaderLimits policy.HeaderLimits
	// DeadLetters are the locations outside that event subscriptions may have their dead letters written to; zero for
	// none.
	DeadLetters policy.ExportLocations
	// PublicURL is how the world reaches this service, such as https://events.example.com: what validationUrl begins with.
	// Default: what the management request was sent to.
	PublicURL string
	// DefaultValidation is endpointValidation of who states none, by the endpoint's host; nil for required.
	DefaultValidation func(host string) catalog.EndpointValidation
	// ValidationWait is how long the answer of a PUT waits for the handshake at most; default 15 s.
	ValidationWait time.Duration
	// DevKey is the access key that everybody knows. It is refused unless AllowDevKey, also where a topic has it: a
	// database that was made by dev may later be served to the world.
	DevKey      string
	AllowDevKey bool
	// LocalHostOnly rejects requests whose Host is neither localhost nor an IP address. It protects a service on the
	// loopback interface whose credentials are well known from pages of other sites (DNS rebinding).
	LocalHostOnly bool
	// TrustedProxies are the addresses of proxies before this service, which say whom a request came from in
	// ForwardedHeader. None: a request comes from whoever has connected.
	TrustedProxies []netip.Prefix
	// ForwardedHeader is the header that those proxies write; default XForwardedFor.
	ForwardedHeader auth.ForwardedHeader
	// RequestsPerSecond is how many requests one credential may make on this node; 0 = as many as it likes.
	RequestsPerSecond int
	// Ready says whether requests can be served. Its error is logged; callers of /readyz are told only what a
	// NotReadyError says. Default: the store's Ping.
	Ready func(context.Context) error
	// Metrics answers /metrics; nil for nothing there. OpenMetrics lets everybody ask, as in dev; else whoever may read.
	Metrics     http.Handler
	OpenMetrics bool
	// Counters count the responses, for Metrics; default new ones.
	Counters *Counters
	// Stopping ends with the program: requests that still run are then canceled. Default: never.
	Stopping context.Context //nolint:containedctx // it is the program's, and outlives each request
	// NoSignIn rejects logins: no user signs in to the dashboard beside this API, so none could approve one.
	NoSignIn bool
	// Logger defaults to slog.Default().
	Logger *slog.Logger
	// OnPublish is told of every stored publication before the publisher is answered, so it must be quick; nil for nobody.
	OnPublish func(PublishReport)
}

// PublishReport is one publication that was stored.
type PublishReport struct {
	// Topic is the topic's name.
	Topic string
	// Events are what was published. Their Body is only lent: its memory is used again once OnPublish has returned.
	Events []event.Event
	// Matched counts the event subscriptions that want each event, in the events' order.
	Matched []int
	// Took is how long the request took until it was stored, and Commit how long the transaction did that stored it, and
	// others with it.
	Took, Commit time.Duration
}

// NotReadyError is an error of Options.Ready whose text may be shown to anybody, such as "migrations are missing".
type NotReadyError string

// Error returns the text.
func (n NotReadyError) Error() string { return string(n) }

// Server is the REST API.
type Server struct {
	options   Options
	auth      *auth.Authenticator
	parts     management.Parts
	log       *slog.Logger
	echo      *echo.Echo
	document  func() ([]byte, error) // the OpenAPI document, made on the first request
	reference *openapi.Reference
	rate      *auth.Rate // nil = no limit
	begun     *auth.Rate // logins that begin, by address
	polled    *auth.Rate // polls of logins, by address

	rejections *rejections
	failures   *failures
}

// New makes the server with all its routes. It listens to nothing: see Handler and NewHTTPServer. It fails when a
// required option is missing, or when the admin token is the key that everybody knows.
func New(o Options) (*Server, error) {
	switch {
	case o.Parts.DB == nil:
		return nil, errors.New("server: Store is required")
	case o.AdminToken == "":
		return nil, errors.New("server: AdminToken is required")
	case o.AdminToken == o.DevKey && !o.AllowDevKey:
		return nil, errors.New("server: the admin token must not be the well-known key of postrider dev")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.ValidationWait == 0 {
		o.ValidationWait = management.DefaultValidationWait
	}
	if o.ForwardedHeader == "" {
		o.ForwardedHeader = auth.XForwardedFor
	}
	if o.Counters == nil {
		o.Counters = NewCounters()
	}
	if o.Stopping == nil {
		o.Stopping = context.Background()
	}
	if o.Ready == nil {
		o.Ready = pings(o.Parts.Reader)
	}
	rejectedKey := o.DevKey
	if o.AllowDevKey {
		rejectedKey = ""
	}
	s := &Server{
		options: o, auth: auth.NewAuthenticator(o.Parts.Access, o.Parts.Clock, o.AdminToken, rejectedKey), parts: o.Parts,
		log: o.Logger, echo: echo.New(),
		rate:       auth.NewRate(o.RequestsPerSecond),
		rejections: newRejections(), failures: &failures{kinds: map[string]failureKind{}},
	}
	s.document = sync.OnceValues(func() ([]byte, error) {
		text, _, err := Document()
		return text, err
	})
	s.reference = openapi.NewReference(s.document)
	s.begun, s.polled = auth.RateOf(loginsBegun), auth.RateOf(loginsPolled)
	s.setUp()
	return s, nil
}

// pings is ready as long as the database answers.
func pings(s *query.Reader) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := s.Ping(ctx); err != nil {
			return fmt.Errorf("%w: %w", NotReadyError("the database does not answer"), err)
		}
		return nil
	}
}

func (s *Server) setUp() {
	e := s.echo
	e.HideBanner, e.HidePort = true, true
	e.Logger.SetOutput(io.Discard) // everything worth a line goes to slog
	// Without this, echo believes an X-Forwarded-For that anybody may send.
	e.IPExtractor = echo.ExtractIPDirect()
	e.SchemeExtractor = auth.SchemeOf
	e.HTTPErrorHandler = s.answerError
	e.Pre(s.counted, auth.KnowClient(s.options.ForwardedHeader, s.options.TrustedProxies))
	e.Pre(s.recoverAndLog, guarded, notStored)
	if s.options.LocalHostOnly {
		e.Pre(localHostOnly)
	}
	if s.rate != nil {
		e.Pre(s.limitRate)
	}
	e.Pre(s.noteRejections)
	for _, r := range append(s.routes(), s.machineRoutes()...) {
		r.addTo(e, s)
	}
}

// Handler serves the whole API.
func (s *Server) Handler() http.Handler { return s.echo }

// Echo is the router behind Handler, for more routes beside the API's, such as the dashboard's pages. Errors that their
// handlers return are answered as JSON.
func (s *Server) Echo() *echo.Echo { return s.echo }

// Limits of a connection. The header's time is what stops a client that sends a byte a minute; the whole request's is
// long enough for 1 MiB over 300 kbit/s; the answer's leaves room for the 25 s that a publication may wait for the
// database.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = time.Minute
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// NewHTTPServer makes the server that listens on addr: net/http's own defaults have no time limits at all.
func NewHTTPServer(addr string, handler http.Handler) *http.Server {
	return &http.Server{
		Addr: addr, Handler: handler, MaxHeaderBytes: maxHeaderBytes,
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
	}
}
