package v1

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/destination"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/filter"
	"postrider/internal/operator"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/sqlquery"
	"postrider/jobs/publish"
	"postrider/jobs/pull"
	"postrider/policy"
	"postrider/server/api"
)

// Handlers respond to the requests under /v1.
type Handlers struct {
	Parts        Parts
	Allow        []netip.Prefix
	AllowHTTP    bool
	FilterLimits filter.Limits
	HeaderLimits endpointconf.HeaderLimits
	Locations    endpointconf.ExportLocations
	// The rest is as in Options of package server.
	DefaultValidation func(host string) catalog.EndpointValidation
	ValidationWait    time.Duration
	Check             Check
	LeastKeyBytes     int // of access keys that a file declares, see spec.KeyProblem
	Log               *slog.Logger

	declaredPolicies map[string]*policy.Policy // those of a configuration that is compared
}

// Check checks that the target of a destination exists and accepts its credentials; see jobs.Engine.Check.
type Check func(context.Context, time.Time, *destination.Destination, *endpointconf.Connection) destination.Result

// problems are the mistakes in one request, with checks of the management operations.
type problems struct{ api.Problems }

func (p *problems) validation(mistakes []policy.ValidationError) {
	for i := range mistakes {
		p.Check(&mistakes[i])
	}
}

// Parts are what the REST API works with. All are required.
type Parts struct {
	DB            *postgres.DB
	Clock         *postgres.Clock
	Cache         *catalog.Cache
	Topics        *catalog.Topics
	Subscriptions *catalog.Subscriptions
	Holds         *catalog.Holds
	Handshakes    *catalog.Handshakes
	Policies      *catalog.Policies
	Publisher     *publish.Publisher
	Receiver      *pull.Receiver
	Access        *access.Access
	Reader        *query.Reader
	Operator      *operator.Operator
	Queries       *sqlquery.Runner
	SavedQueries  *sqlquery.Store
	Relays        *catalog.Relays
}

// TopicPath names a topic.
type TopicPath struct {
	Topic string `path:"topic" example:"orders"`
}

// SubscriptionPath names an event subscription.
type SubscriptionPath struct {
	TopicPath
	Subscription string `path:"subscription" example:"billing"`
}

// EndpointOf is the path for publishing to a topic.
func EndpointOf(t *catalog.Topic) string { return t.PublishPath() }

// InputOf is how a topic's events are read.
func InputOf(t *catalog.Topic) event.Input {
	return event.Input{
		Schema: t.InputSchema, Topic: t.Name, Mapping: t.InputSchemaMapping, AnyTopic: t.Relays(),
		NewID: uuid.NewString, Now: time.Now(),
	}
}
