package query

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/postgres"
)

// EndpointHost is where endpoints of event subscriptions are.
type EndpointHost struct {
	// URL is what their URLs have in common: scheme, host and port, no path.
	URL           string
	Subscriptions int
	// Example is one of these event subscriptions, as topic/name.
	Example string
}

// EndpointHosts are those of the most event subscriptions; All is how many there are.
type EndpointHosts struct {
	Hosts []EndpointHost
	All   int
}

// ReadEndpointHosts reads up to so many hosts of the endpoints that are stored. It needs no key. ErrTooSlow,
// ErrUnavailable.
func ReadEndpointHosts(ctx context.Context, pool *pgxpool.Pool, most int) (h EndpointHosts, err error) {
	const hosts = `
SELECT substring(endpoint_base_url FROM '^[^:]+://[^/]+') AS url, count(*)::int AS subscriptions,
       min(topic || '/' || subscription) AS example, (count(*) OVER ())::int AS hosts
  FROM postrider.event_subscriptions GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT @most`
	type row struct {
		EndpointHost
		Hosts int
	}
	err = checking(ctx, pool, func(tx pgx.Tx) error {
		rows, err := postgres.Rows[row](ctx, tx, hosts, pgx.NamedArgs{"most": most})
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
