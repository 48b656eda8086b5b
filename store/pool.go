package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// OpenPool connects to the database at url. maxConns 0 takes pgx's default unless the URL says pool_max_conns.
//
// Plans are never cached: on a table that is nearly empty most of the time (river_job), PostgreSQL settles on a
// sequential scan for good, and a burst then takes 4,992 ms a fetch instead of 11 ms.
func OpenPool(ctx context.Context, url string, maxConns int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	if maxConns > 0 {
		config.MaxConns = int32(maxConns)
	}
	config.MaxConnLifetime = 30 * time.Minute
	config.MaxConnLifetimeJitter = 5 * time.Minute
	config.ConnConfig.ConnectTimeout = 5 * time.Second
	setParam(config, "application_name", "postrider")
	setParam(config, "plan_cache_mode", "force_custom_plan")
	// Compiling a statement takes longer than running any of ours.
	setParam(config, "jit", "off")
	setParam(config, "idle_in_transaction_session_timeout", "30s")
	// Preparing a statement waits for table locks too: a table that somebody locked must cost 2 s and an error, not a node.
	setParam(config, "lock_timeout", "2s")
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the connection pool: %w", err)
	}
	return pool, nil
}

func setParam(config *pgxpool.Config, name, value string) {
	if _, set := config.ConnConfig.RuntimeParams[name]; !set {
		config.ConnConfig.RuntimeParams[name] = value
	}
}
