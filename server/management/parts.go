package management

import (
	"postrider/access"
	"postrider/catalog"
	"postrider/jobs/publish"
	"postrider/operator"
	"postrider/postgres"
	"postrider/query"
)

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
	Access        *access.Access
	Reader        *query.Reader
	Operator      *operator.Operator
}
