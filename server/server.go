package server

import (
	"cmp"
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

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/filter"
	"postrider/server/auth"
	"postrider/server/openapi"
	v1 "postrider/server/v1"
)

// Options of a Server. Parts and AdminToken are required.
type Options struct {
	Parts v1.Parts
	// AdminToken is the bearer token of administrators. It also publishes to every topic.
	AdminToken string
	// AllowCIDR are address ranges of endpoints that are rejected by default, such as 10.0.0.0/8.
	AllowCIDR []netip.Prefix
	// AllowHTTP allows http URLs for endpoints at public addresses. In AllowCIDR they are always allowed.
	AllowHTTP bool
	// FilterLimits limit the filter of an event subscription; zero = filter.DefaultLimits.
	FilterLimits filter.Limits
	// HeaderLimits limit the custom headers of an event subscription; zero = Event Grid's.
	HeaderLimits endpointconf.HeaderLimits
	// DeadLetters are the external locations that dead letters may be exported to.
	DeadLetters endpointconf.ExportLocations
	// PublicURL is the public URL of this service, such as https://events.example.com, for validationUrl. Default: the URL
	// of the management request.
	PublicURL string
	// DefaultValidation is the default of endpointValidation by the endpoint's host; nil = required.
	DefaultValidation func(host string) catalog.EndpointValidation
	// ValidationWait is how long a PUT waits for the handshake; default 15 s.
	ValidationWait time.Duration
	// Check checks a destination that is no webhook before it is stored; nil = on a node without an engine.
	Check v1.Check
	// DevKey is the well-known access key of postrider dev. It is rejected unless AllowDevKey, even if a topic has it: a
	// database created by dev may later be served publicly.
	DevKey      string
	AllowDevKey bool
	// LocalHostOnly rejects requests whose Host is neither localhost nor an IP address. It protects a loopback service
	// with well-known credentials from pages of other sites (DNS rebinding).
	LocalHostOnly bool
	// TrustedProxies are the addresses of proxies whose ForwardedHeader is used for the client's address.
	TrustedProxies []netip.Prefix
	// ForwardedHeader is the header of those proxies; default XForwardedFor.
	ForwardedHeader auth.ForwardedHeader
	// RequestsPerSecond limits the requests of a credential on this node; 0 = no limit.
	RequestsPerSecond int
	// Ready returns nil if requests can be served. /readyz shows only a NotReadyError; other errors are logged. Default:
	// a ping of the database.
	Ready func(context.Context) error
	// Metrics serves /metrics; nil = 404. OpenMetrics allows it without a credential, otherwise it needs the role viewer.
	Metrics     http.Handler
	OpenMetrics bool
	// Counters count the responses, for Metrics; default new ones.
	Counters *Counters
	// Stopping ends with the program and cancels the requests that still run. Default: never.
	Stopping context.Context //nolint:containedctx // it is the program's, and outlives each request
	// Logger defaults to slog.Default().
	Logger *slog.Logger
	// OnPublish is called for each stored publish before its response; nil = no call.
	OnPublish func(PublishReport)
	// Dev adds what only postrider dev has; nil = nothing.
	Dev *Dev
}

// PublishReport is a stored publish.
type PublishReport struct {
	// Topic is the topic's name.
	Topic string
	// Events are the published events. Their Body is valid until OnPublish returns.
	Events []event.Event
	// Matched counts the matching event subscriptions of each event.
	Matched []int
	// Took is the duration of the request until it was stored. Commit is that of the transaction, which it may share.
	Took, Commit time.Duration
}

// NotReadyError is an error of Options.Ready that every client may see, such as "migrations are missing".
type NotReadyError string

// Error returns the text.
func (n NotReadyError) Error() string { return string(n) }

// Server is the REST API.
type Server struct {
	options   Options
	auth      *auth.Authenticator
	parts     v1.Parts
	log       *slog.Logger
	echo      *echo.Echo
	reference echo.HandlerFunc // the page of the operations
	rate      *auth.Rate       // nil = no limit

	rejections *rejections
	relayed    *relayed
	failures   *failures
	publishing sync.RWMutex // locked by a reset of postrider dev
}

// New creates the server with all its routes; NewHTTPServer makes it listen. It fails if a required option is missing,
// or if the admin token is DevKey.
func New(o Options) (*Server, error) {
	switch {
	case o.Parts.DB == nil:
		return nil, errors.New("server: Parts are required")
	case o.AdminToken == "":
		return nil, errors.New("server: AdminToken is required")
	case o.AdminToken == o.DevKey && !o.AllowDevKey:
		return nil, errors.New("server: the admin token must not be the well-known key of postrider dev")
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.ValidationWait = cmp.Or(o.ValidationWait, v1.DefaultValidationWait)
	o.ForwardedHeader = cmp.Or(o.ForwardedHeader, auth.XForwardedFor)
	o.Counters = cmp.Or(o.Counters, NewCounters())
	o.Stopping = cmp.Or(o.Stopping, context.Background())
	if o.Ready == nil {
		o.Ready = func(ctx context.Context) error {
			if err := o.Parts.Reader.Ping(ctx); err != nil {
				return fmt.Errorf("%w: %w", NotReadyError("the database does not respond"), err)
			}
			return nil
		}
	}
	rejectedKey := o.DevKey
	if o.AllowDevKey {
		rejectedKey = ""
	}
	s := &Server{
		options: o, auth: auth.NewAuthenticator(o.Parts.Access, o.Parts.Clock, o.AdminToken, rejectedKey), parts: o.Parts,
		log: o.Logger, echo: echo.New(),
		rate:       auth.NewRate(o.RequestsPerSecond),
		rejections: &rejections{anonymous: map[rejection]int{}, known: map[rejection]int{}},
		relayed:    &relayed{feeds: map[feedKey]*catalog.Relayed{}},
		failures:   &failures{kinds: map[string]failureKind{}},
	}
	s.auth.AnyBearer = o.Dev != nil && o.Dev.AnyBearer
	s.reference = openapi.Reference()
	e := s.echo
	e.HideBanner, e.HidePort = true, true
	e.Logger.SetOutput(io.Discard) // postrider logs with slog
	// By default echo trusts X-Forwarded-For of every client.
	e.IPExtractor = echo.ExtractIPDirect()
	e.SchemeExtractor = auth.SchemeOf
	e.HTTPErrorHandler = s.respondError
	e.Pre(s.counted, auth.WithClient(s.options.ForwardedHeader, s.options.TrustedProxies))
	e.Pre(s.recoverAndLog, securityHeaders, noStore)
	if s.options.LocalHostOnly {
		e.Pre(localHostOnly)
	}
	if s.rate != nil {
		e.Pre(s.limitRate)
	}
	e.Pre(s.noteRejections)
	s.addRoutes()
	s.addDevRoutes()
	return s, nil
}

// Handler serves the whole API.
func (s *Server) Handler() http.Handler { return s.echo }

// Echo is the router, for more routes such as the dashboard's. Errors of their handlers become JSON responses.
func (s *Server) Echo() *echo.Echo { return s.echo }

// Limits of a connection. readTimeout includes the 10 s that a large body may wait for memory, and is then enough for
// 1 MiB at 420 kbit/s: that long, a slow publisher keeps its memory. writeTimeout includes it, the 10 s that a small
// body may wait for memory after it was read, and the 25 s that a publish may wait for the database.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = 70 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// Limits of a connection of HTTP/2. Bodies of requests that wait are not read: together they must leave buffers to
// those that are read, and net/http allows less than 4 MiB for a connection. A client sends up to 65,535 bytes before
// it knows the buffer of a stream (RFC 9113, 6.9.2), and net/http resets a stream that gets more than its buffer.
const (
	maxStreams      = 60
	maxStreamBuffer = 64 << 10
)

// NewHTTPServer creates a server for addr with time limits, which net/http does not have by default.
func NewHTTPServer(addr string, handler http.Handler) *http.Server {
	return &http.Server{
		Addr: addr, Handler: handler, MaxHeaderBytes: maxHeaderBytes,
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: maxStreamBuffer,
			MaxReceiveBufferPerConnection: maxStreams * maxStreamBuffer,
		},
	}
}
