package delivery

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/jobs/queue"
)

var (
	releaseStatement = sqlFile("release")
	claimStatement   = sqlFile("claim", "probation", "subscriptions")

	availableStatement = sqlFile("available")
)

// PointRefill is the failpoint after held deliveries got their jobs and before a fetcher is woken.
const PointRefill = "refill"

// Releaser gives jobs to held deliveries.
type Releaser struct {
	db       *postgres.DB
	cache    *catalog.Cache
	traffic  *queue.Traffic
	notifier *queue.Notifier
	postgres.Failpoint
	count     atomic.Int64
	rateWaits queue.Until[string] // limits without free time, by their keys
}

// NewReleaser makes a releaser.
func NewReleaser(
	db *postgres.DB, cache *catalog.Cache, traffic *queue.Traffic, notifier *queue.Notifier, fail postgres.Failpoint,
) *Releaser {
	return &Releaser{db: db, cache: cache, traffic: traffic, notifier: notifier, Failpoint: fail}
}

// ReleasedCount is how many deliveries this node has released from a hold.
func (r *Releaser) ReleasedCount() int64 { return r.count.Load() }

// Refill releases up to limit deliveries of an event subscription that is not on hold, and returns how many. If it
// takes batches, deliveries that were never attempted are left to its next batch cutter, which Refill inserts. Every
// node calls it again and again, so that no pause, crash or race leaves a delivery on hold.
func (r *Releaser) Refill(ctx context.Context, subscription int64, batching bool, limit int) (int, error) {
	released, forCutter, err := r.release(ctx, subscription, limit, pgx.NamedArgs{
		"refill": true, "also_later": true, "batching": batching, "age": nil, "exempt": false,
	})
	if err != nil {
		return 0, err
	}
	if batching {
		r.traffic.AddOne(subscription, released) // what the cutter takes is counted when it is cut
	} else {
		r.traffic.Released(subscription, released, limit)
	}
	return released + forCutter, nil
}

// ReleaseExpired gives jobs to held deliveries of at least this age, though their event subscription is on hold. Their
// jobs end them, because their time to live has passed or because of the probation's cause, or are last attempts to
// a closed endpoint. onlyDue omits deliveries whose next attempt is not due.
func (r *Releaser) ReleaseExpired(
	ctx context.Context, subscription int64, age time.Duration, onlyDue bool, limit int,
) (int, error) {
	released, _, err := r.release(ctx, subscription, limit, pgx.NamedArgs{
		"refill": false, "also_later": !onlyDue, "batching": false, "age": age, "exempt": true,
	})
	if err != nil {
		return 0, err
	}
	r.traffic.Released(subscription, released, limit)
	return released, nil
}

func (r *Releaser) release(
	ctx context.Context, subscription int64, limit int, args pgx.NamedArgs,
) (released, forCutter int, err error) {
	args["subscription"], args["limit"], args["ahead"] = subscription, max(limit, 0), cutAhead
	if err := r.db.QueryRow(ctx, releaseStatement, args).Scan(&released, &forCutter); err != nil {
		return 0, 0, fmt.Errorf("release held deliveries: %w", err)
	}
	if released+forCutter > 0 {
		r.count.Add(int64(released + forCutter))
		r.Reach(PointRefill)
		r.notifier.RequestDeliveries()
	}
	return released, forCutter, nil
}

// availableStep bounds one statement of MakeAvailable.
const availableStep = 10_000

// MakeAvailable ends the holds of deliveries of an event subscription that a consumer pulls and that is not on hold.
// With an age, it ends those of deliveries of at least this age, though the event subscription is on hold: what has
// expired is ended next.
func (r *Releaser) MakeAvailable(ctx context.Context, subscription int64, age *time.Duration) error {
	for changed := availableStep; changed >= availableStep; {
		if err := r.db.QueryRow(ctx, availableStatement, pgx.NamedArgs{
			"subscription": subscription, "limit": availableStep, "age": age,
		}).Scan(&changed); err != nil {
			return fmt.Errorf("make deliveries available: %w", err)
		}
		if r.count.Add(int64(changed)); changed > 0 {
			r.notifier.RequestReceives(subscription)
		}
	}
	return nil
}

// ClaimProbe releases one held delivery of a probation that is due for a probe; false if nothing is held, or another
// node was faster. It omits event subscriptions that another hold makes wait, see MayProbe.
func (r *Releaser) ClaimProbe(ctx context.Context, key []byte) (claimed bool, err error) {
	snapshot, traffic := r.cache.Snapshot(), r.traffic.LatestTraffic()
	var ids []int64
	for sub := range snapshot.Subscriptions() {
		if _, held := traffic.Holds[sub.ID]; !held && traffic.MayProbe(snapshot, sub, key) {
			ids = append(ids, sub.ID)
		}
	}
	if len(ids) == 0 {
		return false, nil
	}
	slices.Sort(ids)
	if err := r.db.QueryRow(ctx, claimStatement, key, ids).Scan(&claimed); err != nil {
		return false, fmt.Errorf("claim a probe: %w", err)
	}
	if claimed {
		r.notifier.RequestDeliveries()
	}
	return claimed, nil
}
