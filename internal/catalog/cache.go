// Package catalog has the configuration: topics, event subscriptions, retry policies, their secrets, holds set by
// operators and validation handshakes. Cache keeps it in memory; read Cache first.
package catalog

import (
	"context"
	"embed"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var sql = postgres.SQLFiles(sqlFiles)

// NewParts returns the parts that change the catalog. node is recorded with the steps of handshakes.
func NewParts(
	cache *Cache, node string, fail postgres.Failpoint,
) (*Topics, *Subscriptions, *Holds, *Handshakes, *Policies) {
	handshakes := &Handshakes{cache.records, cache, node}
	return &Topics{cache.records, cache}, &Subscriptions{cache.records, cache, handshakes, fail},
		&Holds{cache.records, cache, fail}, handshakes, &Policies{cache}
}

const (
	reloadInterval = time.Second
	// reloadTimeout bounds a reload and the wait for another one: a connection that a firewall has dropped silently must
	// not keep this node from later changes.
	reloadTimeout = 5 * time.Second
)

// Cache is the newest Snapshot that this process has read. Its methods may be called from any goroutine.
type Cache struct {
	records
	clock     *postgres.Clock
	timeScale int // see policy.Rules.Scaled

	snapshot  atomic.Pointer[Snapshot]
	reloading sync.Mutex
	confirmer confirmer
}

// NewCache reads the catalog once, and sets the clock.
func NewCache(
	ctx context.Context, db *postgres.DB, sealer *postgres.Sealer, clock *postgres.Clock, timeScale int, log *slog.Logger,
) (*Cache, error) {
	c := &Cache{records: records{db, sealer, log}, clock: clock, timeScale: timeScale}
	c.confirmer.reload = c.Reload
	c.snapshot.Store(emptySnapshot())
	return c, c.Reload(ctx)
}

// Snapshot is at most a second old while Run runs and the database is available.
func (c *Cache) Snapshot() *Snapshot { return c.snapshot.Load() }

// Run reloads the catalog every second until ctx ends.
func (c *Cache) Run(ctx context.Context) {
	tick := time.NewTicker(reloadInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := c.Reload(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("the catalog could not be reloaded; publishing continues with the one in memory, "+
				"which each transaction checks", "error", err)
		}
	}
}

// Reload reads what has changed since the Snapshot in memory, within 5 s. Without changes it costs one trivial query.
func (c *Cache) Reload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	c.reloading.Lock()
	defer c.reloading.Unlock()
	const query = `SELECT version, pg_postmaster_start_time(), clock_timestamp() FROM postrider_internal.catalog`
	old := c.snapshot.Load()
	var found Snapshot
	var now time.Time
	sent := time.Now()
	if err := c.db.QueryRow(ctx, query).Scan(&found.Version, &found.server, &now); err != nil {
		return fmt.Errorf("read the catalog's version: %w", err)
	}
	c.clock.Correct(now, sent, time.Now())
	if found.Version == old.Version && found.server.Equal(old.server) {
		return nil
	}
	return c.replace(ctx, old, old)
}

// Renew reads everything, for a database whose rows were replaced by earlier ones.
func (c *Cache) Renew(ctx context.Context) error {
	c.reloading.Lock()
	defer c.reloading.Unlock()
	return c.replace(ctx, c.snapshot.Load(), emptySnapshot())
}

// replace replaces the Snapshot in memory by a newer one, which has what did not change from base.
func (c *Cache) replace(ctx context.Context, old, base *Snapshot) error {
	// One snapshot for all tables: a Snapshot never mixes two versions.
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	var fresh *Snapshot
	err := pgx.BeginTxFunc(ctx, c.db, options, func(tx pgx.Tx) error {
		var err error
		fresh, err = c.ReadIn(ctx, tx, base)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the catalog: %w", err)
	}
	c.snapshot.Store(fresh)
	close(old.replaced)
	return nil
}

// ReadIn reads the Snapshot as the caller's transaction sees it: what has changed since old, or everything if the
// server is another one: after a crash or a failover, the database may have lost commits with their versions.
func (c *Cache) ReadIn(ctx context.Context, tx postgres.Querier, old *Snapshot) (*Snapshot, error) {
	const query = "SELECT version, pg_postmaster_start_time(), server_id::text FROM postrider_internal.catalog"
	var version int64
	var server time.Time
	var serverID string
	if err := tx.QueryRow(ctx, query).Scan(&version, &server, &serverID); err != nil {
		return nil, err
	}
	if version < old.Version || !server.Equal(old.server) {
		old = emptySnapshot()
	}
	fresh := &Snapshot{
		Version: version, ServerID: serverID, server: server, topics: maps.Clone(old.topics), subs: maps.Clone(old.subs),
		subsByTopic: maps.Clone(old.subsByTopic), filters: maps.Clone(old.filters),
		policies: old.policies, policyVersions: old.policyVersions, policyList: old.policyList,
		policiesSeen: old.policiesSeen, expiring: maps.Clone(old.expiring), now: c.clock.Now,
		rules: maps.Clone(old.rules), timeScale: c.timeScale, replaced: make(chan struct{}),
	}
	topics, err := c.queryTopics(ctx, tx, "WHERE t.version > $1", old.Version)
	if err != nil {
		return nil, err
	}
	subs, err := c.querySubscriptions(ctx, tx, "WHERE s.version > $1", old.Version)
	if err != nil {
		return nil, err
	}
	changed := fresh.apply(topics, subs)
	if err := fresh.readPolicies(ctx, tx); err != nil {
		return nil, err
	}
	if fresh.policiesSeen != old.policiesSeen {
		changed = slices.Collect(maps.Keys(fresh.subs))
	}
	for _, id := range changed {
		delete(fresh.rules, id)
		if s, ok := fresh.subs[id]; ok {
			if p, ok := fresh.policies[s.RetryPolicy.Policy]; ok {
				fresh.rules[id] = p.Resolve(s.Overrides()).Scaled(fresh.timeScale)
			}
		}
	}
	if fresh.rates = old.rates; len(subs) > 0 {
		fresh.resolveRates()
	}
	return fresh, nil
}

// Confirm returns once the Snapshot in memory is one that was read after the call. A client whose topic or key is not
// in memory calls it before it is rejected.
func (c *Cache) Confirm(ctx context.Context) error { return c.confirmer.confirm(ctx) }

// change changes the catalog in one transaction and reloads it. It locks the catalog's row first, so that two changes
// cannot deadlock, and fails after 5 s if another transaction keeps that lock.
func (c *Cache) change(ctx context.Context, change func(pgx.Tx) error) error {
	const lock = "SET LOCAL lock_timeout = '5s'; SELECT FROM postrider_internal.catalog FOR UPDATE"
	err := pgx.BeginFunc(ctx, c.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lock); err != nil {
			return fmt.Errorf("wait for another change of topics, event subscriptions or retry policies: %w", err)
		}
		return change(tx)
	})
	if err != nil && postgres.IsOutage(err) {
		return fmt.Errorf("%w: %w", postgres.ErrUnavailable, err)
	}
	if err != nil {
		return err
	}
	// The change is committed. If this fails, the next publish's transaction finds the newer version.
	if err := c.Reload(ctx); err != nil {
		c.log.Warn("the catalog could not be reloaded after a change", "error", err)
	}
	return nil
}

// records reads the rows of topics and event subscriptions, and opens and seals their secrets.
type records struct {
	db     *postgres.DB
	sealer *postgres.Sealer
	log    *slog.Logger
}
