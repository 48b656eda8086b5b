package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"postrider/jobs"
	"postrider/query"
	"postrider/server"
)

const (
	// readyAge is how long a result is used again: requests need no credential and are not limited.
	readyAge = 500 * time.Millisecond
	// silentTooLong is more than a lease (four seconds) and a restart of PostgreSQL.
	silentTooLong = 30 * time.Second
)

// lastCheck is the latest result.
type lastCheck struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

// isReady returns why the node is not ready. The text of a server.NotReadyError may be shown to any client.
func (a *instance) isReady(ctx context.Context) error {
	if !a.ready.Load() {
		return server.NotReadyError("this node is starting or stopping")
	}
	a.checked.mu.Lock()
	defer a.checked.mu.Unlock()
	if time.Since(a.checked.at) >= readyAge {
		a.checked.err = a.check(ctx)
		a.checked.at = time.Now()
	}
	return a.checked.err
}

func (a *instance) check(ctx context.Context) error {
	if err := a.store.Reader.Ping(ctx); err != nil {
		return fmt.Errorf("%w: %w", server.NotReadyError("the database does not answer"), err)
	}
	r, err := a.store.Reader.Readiness(ctx, a.keyID, a.store.Node)
	if err != nil {
		if schema := requireSchema(ctx, a.pool); schema != nil {
			return fmt.Errorf("%w: %w",
				server.NotReadyError("the database's schema is missing, or older than this program: run postrider migrate up"),
				schema)
		}
		return err
	}
	r.DiskFull = a.store.Disk.DiskFull()
	stalled := time.Duration(0)
	if a.engine != nil {
		stalled = a.engine.Stalled()
	}
	return a.missing(r, stalled)
}

// missing returns why the node is not ready. A node without an engine has no heartbeat.
func (a *instance) missing(r query.Readiness, stalled time.Duration) error {
	switch {
	case !r.KeyKnown:
		return server.NotReadyError("the database was set up with another encryption key than this node's")
	case r.DiskFull:
		return server.NotReadyError("the database's disk is full: no event can be stored until there is room; free space " +
			"or enlarge the disk")
	case !r.PartitionsToday:
		return server.NotReadyError("the database has no partition for today's events; a node makes them every minute, and " +
			"its log says why it cannot")
	case a.engine != nil && !r.Registered:
		return server.NotReadyError(
			"this node is not registered: it has written no heartbeat yet, or was thought dead a moment ago")
	case a.engine != nil && r.Silent > silentTooLong:
		return server.NotReadyError(fmt.Sprintf("this node wrote its last heartbeat %s ago", r.Silent.Round(time.Second)))
	case stalled >= jobs.StalledTooLong:
		return server.NotReadyError(fmt.Sprintf("deliveries are due and this node has begun no attempt for %s; restart it",
			stalled))
	}
	return nil
}
