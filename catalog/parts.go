package catalog

import (
	"embed"

	"postrider/postgres"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

func sqlFile(name string) string { return postgres.SQLFile(sqlFiles, name) }

// NewParts returns the parts that change the catalog. node is recorded with the steps of handshakes.
func NewParts(
	cache *Cache, node string, fail postgres.Failpoint,
) (*Topics, *Subscriptions, *Holds, *Handshakes, *Policies) {
	handshakes := &Handshakes{cache.records, cache, node}
	return &Topics{cache.records, cache}, &Subscriptions{cache.records, cache, handshakes, fail},
		&Holds{cache.records, cache, fail}, handshakes, &Policies{cache}
}
