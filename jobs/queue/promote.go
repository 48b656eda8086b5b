package queue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"postrider/postgres"
)

const (
	// promoteStep bounds one promotion: a burst of due retries is moved in steps, so that no statement runs long.
	promoteStep = 2500
	// Parking costs the database 60 to 90 microseconds a delivery: 90,000 retries of one endpoint that are due at once
	// would take a core for 7 s. So no more than parkStep are parked in a call, four times a second, while there is
	// something to park; the endpoint itself is not let through faster anyway.
	parkStep = 250
	// Meanwhile the retries of others, which come after those in the index, are looked for past them: 90,000 rows to read,
	// a tenth of a second.
	lookPast = 2 * time.Second
	// Behind one flood may be another one. So many are looked past, at a step of parkStep each.
	lookRounds = 8
	// wakeInterval is how late a route may be whose step failed.
	wakeInterval = time.Second
)

var (
	promoteStatement = sqlFile("promote.sql")
	wakeStatement    = sqlFile("wake.sql")
	lookStatement    = sqlFile("look.sql")
)

// Look says what there is to do: Promote, or CollectPublishes. Every node asks every 250 ms.
type Look struct{ Promote, Published bool }

// Look looks.
func (q *JobRows) Look(ctx context.Context) (look Look, err error) {
	if err := q.db.QueryRow(ctx, lookStatement).Scan(&look.Promote, &look.Published); err != nil {
		return look, fmt.Errorf("look for what is due: %w", err)
	}
	return look, nil
}

// Room bounds how many due jobs of an event subscription Promote makes available; the others get the hold, "" for
// admission.
type Room struct {
	SubscriptionID int64
	Jobs           int
	Hold           string
}

// PointPromote is the failpoint after due jobs became available and before a fetcher is woken.
const PointPromote = "promote"

// Promote makes the jobs available whose time has come and says how many were due. Where no room is given there is
// DefaultRoom. Every node calls it every 250 ms while Look finds any; nodes skip each other's rows.
func (q *JobRows) Promote(ctx context.Context, rooms ...Room) (int, error) {
	total, err := q.promoteScheduled(ctx, rooms)
	if err == nil && q.promoter.wakes(time.Now()) {
		err = q.wake(ctx, &total)
	}
	if total > 0 {
		q.promoted.Add(int64(total))
		q.Reach(PointPromote)
		q.notifier.Poke()
	}
	if err != nil {
		return total, fmt.Errorf("promote due jobs: %w", err)
	}
	return total, nil
}

// wake makes jobs available whose times are River's own.
func (q *JobRows) wake(ctx context.Context, total *int) error {
	for moved := promoteStep; moved >= promoteStep; *total += moved {
		if err := q.db.QueryRow(ctx, wakeStatement, promoteStep).Scan(&moved); err != nil {
			return err
		}
	}
	return nil
}

// promoter remembers whose retries flood the queue.
type promoter struct {
	mu       sync.Mutex
	flooding []string // ids of the event subscriptions that the last step had to park something of
	lookedAt time.Time
	wokeAt   time.Time
}

// wakes says whether it is time to look for the jobs whose times are River's own: seldom, for they are few, and four
// looks at nothing four times a second were a quarter of what an idle node asks.
func (p *promoter) wakes(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.wokeAt) < wakeInterval {
		return false
	}
	p.wokeAt = now
	return true
}

// look says how many rows the next step may take, and whether it is time to look past the flood.
func (p *promoter) look(now time.Time) (step int, past []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.flooding) == 0 {
		return promoteStep, nil
	}
	if now.Sub(p.lookedAt) < lookPast {
		return parkStep, nil
	}
	p.lookedAt = now
	return parkStep, p.flooding
}

func (p *promoter) saw(flooding []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flooding = flooding
}

// promoteScheduled goes on while every job of a step fits.
func (q *JobRows) promoteScheduled(ctx context.Context, rooms []Room) (total int, err error) {
	left := make(map[int64]Room, len(rooms))
	for _, r := range rooms {
		left[r.SubscriptionID] = r
	}
	step, past := q.promoter.look(time.Now())
	if past != nil {
		if total, err = q.promotePast(ctx, left, past); err != nil {
			return total, err
		}
	}
	for {
		due, flooding, err := q.promoteOnce(ctx, left, step, nil)
		if err != nil {
			return total, err
		}
		q.promoter.saw(flooding)
		if total += due; due < step || len(flooding) > 0 {
			return total, nil
		}
	}
}

// promotePast goes on behind those that flood, and behind each further one that it meets there.
func (q *JobRows) promotePast(ctx context.Context, left map[int64]Room, past []string) (total int, err error) {
	for step, rounds := parkStep, 0; rounds < lookRounds; {
		due, flooding, err := q.promoteOnce(ctx, left, step, past)
		if err != nil {
			return total, err
		}
		switch total += due; {
		case len(flooding) > 0:
			past, step, rounds = slices.Concat(past, flooding), parkStep, rounds+1
		case due < step:
			return total, nil
		default:
			step = promoteStep
		}
	}
	return total, nil
}

// promoteOnce makes one step over the due jobs of all event subscriptions but those given, and takes off their room
// what it made available. flooding are those that it had to park something of.
func (q *JobRows) promoteOnce(
	ctx context.Context, left map[int64]Room, step int, without []string,
) (due int, flooding []string, err error) {
	rows, err := q.db.Query(ctx, promoteStatement,
		append(promoteColumns(step, left), append([]string{}, without...), parkStep)...)
	if err != nil {
		return 0, nil, err
	}
	var subscription int64
	var met, fitting, fit int
	_, err = pgx.ForEachRow(rows, []any{&subscription, &met, &fitting, &fit}, func() error {
		r, known := left[subscription]
		if !known {
			r = Room{SubscriptionID: subscription, Jobs: DefaultRoom}
		}
		r.Jobs -= fit
		left[subscription] = r
		q.traffic.AddOne(subscription, fit)
		if due += met; fitting < met {
			flooding = append(flooding, strconv.FormatInt(subscription, 10))
		}
		return nil
	})
	return due, flooding, err
}

func promoteColumns(step int, rooms map[int64]Room) []any {
	var subscriptions []int64
	var jobs []int
	var holds []pgtype.Text
	for _, r := range rooms {
		subscriptions, jobs, holds = append(subscriptions, r.SubscriptionID), append(jobs, max(r.Jobs, 0)), append(holds,
			postgres.NullText(r.Hold))
	}
	return []any{step, DefaultRoom, subscriptions, jobs, holds}
}
