// Package testnode prepares databases for tests and Go benchmarks.
package testnode

import (
	"context"
	"io"

	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/migrations"
)

// Key seals the secrets in databases of tests.
var Key = []byte("0123456789abcdef0123456789abcdef")

// Migrate fills the template database of pgdev.RunTests, partitions included: creating them takes half of the time to
// set up a test.
func Migrate(ctx context.Context, url string) error {
	pool, err := postgres.OpenPool(ctx, url, 0)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrations.Up(ctx, pool, io.Discard); err != nil {
		return err
	}
	sealer, err := postgres.NewSealer(Key)
	if err != nil {
		return err
	}
	s, err := node.New(ctx, node.Options{Pool: pool, Sealer: sealer, Node: "template"})
	if err != nil {
		return err
	}
	return s.Maintenance.EnsurePartitions(ctx)
}
