// Package query reads what REST lists, dashboard pages, metrics and doctor show. It changes nothing.
package query

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/internal/access"
	"postrider/internal/postgres"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var sql = postgres.SQLFiles(sqlFiles)

// Reader reads what the REST API's lists, the dashboard's pages and the metrics show. It needs no encryption key.
type Reader struct {
	db       *postgres.DB
	clock    *postgres.Clock
	searches *postgres.Bound
}

// NewReader returns a Reader of a database. Its searches use at most half of the pool's connections, and those of one
// credential a sixteenth: publishes and results of attempts need the others. With two at once of one credential, the
// p99 of publishes on two CPUs was three times as long.
func NewReader(db *postgres.DB, clock *postgres.Clock) *Reader {
	conns := int(db.Config().MaxConns)
	return &Reader{db, clock, postgres.NewBound("searches, counts and tails", max(1, conns/2), max(1, conns/16))}
}

// reading is the snapshot that a page is read from. After an error, rows and row read nothing.
type reading struct {
	ctx context.Context
	tx  pgx.Tx
	err error
}

// read reads a page in one snapshot. ErrTooSlow; ErrUnavailable; ErrNotFound.
func read(ctx context.Context, db *postgres.DB, what string, page func(*reading)) error {
	return db.Read(ctx, what, func(tx pgx.Tx) error {
		r := &reading{ctx: ctx, tx: tx}
		page(r)
		return r.err
	})
}

// search reads a page that may take PostgreSQL seconds, such as a search, a count or a report. The errors of Search.
func (r *Reader) search(ctx context.Context, limit time.Duration, what string, page func(*reading)) error {
	return r.Search(ctx, limit, what, func(ctx context.Context, tx pgx.Tx) error {
		r := &reading{ctx: ctx, tx: tx}
		page(r)
		return r.err
	})
}

// Search reads what may take PostgreSQL seconds, in one snapshot. It waits until the node and the credential of ctx
// have a place for it, and keeps the place until PostgreSQL is done. read uses the ctx that it gets.
// *postgres.BusyError; the errors of read.
func (r *Reader) Search(
	ctx context.Context, limit time.Duration, what string, read func(context.Context, pgx.Tx) error,
) error {
	release, err := r.searches.Take(ctx, access.ActorOf(ctx).Name)
	if err != nil {
		return err
	}
	defer release()
	return r.db.ReadCanceling(ctx, limit, what, read)
}

// rows reads the rows of a statement in sql/.
func rows[T any](r *reading, statement string, args ...any) (list []T) {
	if r.err == nil {
		list, r.err = postgres.Rows[T](r.ctx, r.tx, sql(statement), args...)
	}
	return list
}

// row reads the single row of a statement in sql/. ErrNotFound.
func row[T any](r *reading, statement string, args ...any) (one T) {
	if r.err != nil {
		return one
	}
	found, err := postgres.Row[T](r.ctx, r.tx, sql(statement), args...)
	if r.err = err; err != nil {
		return one
	}
	return *found
}

// Turn selects a page of a list that runs from the newest to the oldest: the rows older than Before, or those newer
// than After. At most one of them is set; without both it is the newest page.
type Turn[K any] struct {
	Before, After *K
	// Limit is the number of rows of a page.
	Limit int
}

// Page is a page of such a list, the newest row first.
type Page[T any] struct {
	Rows []T
	// Newer and Older report whether there is a page on that side.
	Newer, Older bool
}

// SearchedPage is a page of a list that postrider searches row by row if no index has the rows that the filter matches.
type SearchedPage[T, K any] struct {
	Page[T]
	// SearchedTo is where the search ended if it found no more than Rows; nil if it reached the end of the list.
	SearchedTo *K
}

// searchLimit is how many rows the search for a page reads if no index has the rows that the filter matches: 20,000
// take 5 to 15 ms. A page with too few rows by then returns where the search ended, and the next one continues there.
const searchLimit = 20_000

// readPage reads a page with the statement of a list and the arguments of its filter. The statement runs backwards for
// After. If no index has the rows that the filter matches (search), the statement list_end finds where to end.
func readPage[T, K any](
	r *reading, list string, t Turn[K], search bool, args pgx.NamedArgs,
) SearchedPage[T, K] {
	args["limit"], args["backwards"] = t.Limit+1, t.After != nil
	bindKey(args, "cursor", cmp.Or(t.After, t.Before))
	var end *K
	if search {
		end = searchEnd[K](r, list, args)
	}
	return pageOf(rows[T](r, list, args), t, end)
}

// pageOf is the page of up to Limit rows of found, which has one more if there are more, in the direction of the turn.
func pageOf[T, K any](found []T, t Turn[K], searchedTo *K) (page SearchedPage[T, K]) {
	more := len(found) > t.Limit
	if !more {
		page.SearchedTo = searchedTo
	}
	page.Rows, page.Newer, page.Older = found[:min(len(found), t.Limit)], t.Before != nil, more
	if t.After != nil {
		slices.Reverse(page.Rows)
		page.Newer, page.Older = more, true
	}
	return page
}

// searchEnd finds where the search for a page ends and binds it to @end; nil if the list ends before.
func searchEnd[K any](r *reading, list string, args pgx.NamedArgs) *K {
	if r.err != nil {
		return nil
	}
	if args["search"] == nil {
		args["search"] = searchLimit
	}
	key := pgx.RowTo[K]
	if reflect.TypeFor[K]().Kind() == reflect.Struct {
		key = pgx.RowToStructByName[K]
	}
	found, _ := r.tx.Query(r.ctx, sql(list+"_end"), args) // CollectOneRow returns its error
	end, err := pgx.CollectOneRow(found, key)
	if err != nil {
		if !errors.Is(err, pgx.ErrNoRows) {
			r.err = err
		}
		return nil
	}
	bindKey(args, "end", &end)
	return &end
}

// bindKey binds the columns of a key to arguments.
func bindKey[K any](args pgx.NamedArgs, name string, key *K) {
	if key == nil {
		return
	}
	switch k := any(*key).(type) {
	case DeliveryPlace:
		args[name+"_event"], args[name] = k.SystemID, k.DeliveryID
	case DeadLetterPlace:
		args[name], args[name+"_id"] = k.DeadLetteredAt, k.DeadLetterID
	case SubscriptionKey:
		args[name+"_topic"], args[name] = k.Topic, k.Subscription
	default:
		args[name] = k
	}
}

// names are the ids that the names of a filter stand for; nil for a name that is not given.
type names struct {
	Topics, Subscriptions []int64
	Events                [][16]byte
}

// topicShare is up to how many event subscriptions of a topic each have their index read for a list.
const topicShare = 50

// bind binds the event subscriptions of a filter. It reports whether the rows can be read along the index of each of
// them. Each index then has its share of the search limit: at least 1, because a search must not end where it began.
func (n *names) bind(args pgx.NamedArgs, topic, subscription string, unordered bool) (bySubscription bool) {
	few := subscription != "" || topic != "" && len(n.Subscriptions) <= topicShare
	bySubscription = few && !unordered
	if args["subscriptions"], args["by_subscription"] = n.Subscriptions, bySubscription; bySubscription {
		args["search"] = max(1, searchLimit/max(1, len(n.Subscriptions)))
	}
	return bySubscription
}

// readNames reads the ids of all event subscriptions with a name; of those of a topic no more than most.
func readNames(r *reading, topic, subscription, event string, most int) names {
	if subscription != "" {
		most = math.MaxInt32
	}
	found := row[names](r, "names", pgx.NamedArgs{
		"topic": given(topic), "subscription": given(subscription), "event": given(event), "most": most,
	})
	if id, wrong := uuid.Parse(event); wrong == nil {
		found.Events = append(found.Events, id)
	}
	return found
}

// given returns nil, which is NULL, for "".
func given(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
