package query

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/postgres"
)

// EndpointHost is a host of endpoints.
type EndpointHost struct {
	// URL is the scheme, host and port of their URLs.
	URL           string
	Subscriptions int
	// Example is one of these event subscriptions, as topic/name.
	Example string
}

// EndpointHosts are the hosts with the most event subscriptions; All is the number of all hosts.
type EndpointHosts struct {
	Hosts []EndpointHost
	All   int
}

var hostList = sqlFile("endpoint_hosts.sql")

// ReadEndpointHosts reads up to most hosts of endpoints. It needs no encryption key. ErrTooSlow, ErrUnavailable.
func ReadEndpointHosts(ctx context.Context, pool *pgxpool.Pool, most int) (h EndpointHosts, err error) {
	type row struct {
		EndpointHost
		Hosts int
	}
	err = readCheckup(ctx, pool, func(tx pgx.Tx) error {
		rows, err := postgres.Rows[row](ctx, tx, hostList, pgx.NamedArgs{"most": most})
		for _, r := range rows {
			h.Hosts, h.All = append(h.Hosts, r.EndpointHost), r.Hosts
		}
		return err
	})
	if err != nil {
		return EndpointHosts{}, fmt.Errorf("read the hosts of endpoints: %w", err)
	}
	return h, nil
}
