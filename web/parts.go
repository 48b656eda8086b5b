package web

import (
	"postrider/access"
	"postrider/catalog"
	"postrider/operator"
	"postrider/postgres"
	"postrider/query"
)

// Parts are what the dashboard works with. All are required.
type Parts struct {
	DB            *postgres.DB
	Clock         *postgres.Clock
	Cache         *catalog.Cache
	Topics        *catalog.Topics
	Subscriptions *catalog.Subscriptions
	Holds         *catalog.Holds
	Access        *access.Access
	Reader        *query.Reader
	Operator      *operator.Operator
}
