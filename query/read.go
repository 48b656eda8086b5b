package query

import (
	"context"
	"embed"
	"errors"
	"math"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

func sqlFile(name string, without ...string) string {
	return postgres.SQLFile(sqlFiles, name, without...)
}

// Reader reads what the REST API's lists, the dashboard's pages and the metrics show. It needs no encryption key.
type Reader struct {
	db    *postgres.DB
	clock *postgres.Clock
}

// NewReader returns a Reader of a database.
func NewReader(db *postgres.DB, clock *postgres.Clock) *Reader { return &Reader{db, clock} }

// read reads a page in one snapshot. ErrTooSlow, ErrUnavailable, ErrNotFound.
func read[T any](ctx context.Context, r *Reader, what string, page func(pgx.Tx) (T, error)) (found T, err error) {
	err = r.db.Read(ctx, what, func(tx pgx.Tx) error {
		found, err = page(tx)
		return err
	})
	return found, err
}

// Turn selects a page of a list that runs from the newest to the oldest: the rows older than Before, or those newer
// than After. At most one of them is set; neither is the newest page.
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

// SearchedPage is a page of a list that postrider searches row by row if no index knows which rows the filter matches.
type SearchedPage[T, K any] struct {
	Page[T]
	// SearchedTo is where the search ended if it found no more than Rows; nil if it reached the end of the list.
	SearchedTo *K
}

// cursor is the key that the page continues from; nil = from the beginning of the list.
func (t Turn[K]) cursor() *K {
	if t.After != nil {
		return t.After
	}
	return t.Before
}

// pageOf makes a page of the rows of a list's statement, which runs backwards for After and returns one row more.
func pageOf[T, K any](rows []T, t Turn[K]) Page[T] {
	more := len(rows) > t.Limit
	rows = rows[:min(len(rows), t.Limit)]
	if t.After != nil {
		slices.Reverse(rows)
		return Page[T]{Rows: rows, Newer: more, Older: true}
	}
	return Page[T]{Rows: rows, Newer: t.Before != nil, Older: more}
}

// list has the statements of a list: page reads a page, end finds where the search for a page ends.
type list[K any] struct {
	page, end string
	key       pgx.RowToFunc[K] // of a row of end
}

// searchLimit is how many rows the search for a page reads if no index knows which ones the filter matches: 20,000 take
// 5 to 15 ms. A page that has found too few rows by then returns where it ended, and the next one continues there.
const searchLimit = 20_000

// searchEach is the search limit for each of several indexes. It is at least 1: a search must not end where it began.
func searchEach(indexes int) int { return max(1, searchLimit/max(1, indexes)) }

// readPage reads a page with the arguments of its filter. If search is set, no index knows which rows it matches.
func readPage[T, K any](
	ctx context.Context, tx pgx.Tx, l *list[K], t Turn[K], search bool, args pgx.NamedArgs,
) (page SearchedPage[T, K], err error) {
	args["limit"], args["backwards"] = t.Limit+1, t.After != nil
	bindKey(args, "cursor", t.cursor())
	if search {
		if page.SearchedTo, err = l.searchEnd(ctx, tx, args); err != nil {
			return page, err
		}
	}
	rows, err := postgres.Rows[T](ctx, tx, l.page, args)
	page.Page = pageOf(rows, t)
	if len(rows) > t.Limit {
		page.SearchedTo = nil
	}
	return page, err
}

// searchEnd finds where the search for a page ends and binds it to @end; nil if the list ends before.
func (l *list[K]) searchEnd(ctx context.Context, tx pgx.Tx, args pgx.NamedArgs) (*K, error) {
	if args["search"] == nil {
		args["search"] = searchLimit
	}
	rows, err := tx.Query(ctx, l.end, args)
	if err != nil {
		return nil, err
	}
	end, err := pgx.CollectOneRow(rows, l.key)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	bindKey(args, "end", &end)
	return &end, err
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

// topicShare is up to how many event subscriptions the rows of a topic are read along the index of each of them.
const topicShare = 50

// few reports whether the rows can be read along the index of each event subscription.
func (n *names) few(topic, subscription string) bool {
	return subscription != "" || topic != "" && len(n.Subscriptions) <= topicShare
}

// bind binds the event subscriptions.
func (n *names) bind(args pgx.NamedArgs, bySubscription bool) {
	if args["subscriptions"], args["by_subscription"] = n.Subscriptions, bySubscription; bySubscription {
		args["search"] = searchEach(len(n.Subscriptions))
	}
}

// readNames reads the ids of all event subscriptions with a name; of those of a topic no more than most.
func readNames(ctx context.Context, tx pgx.Tx, topic, subscription, event string, most int) (*names, error) {
	if subscription != "" {
		most = math.MaxInt32
	}
	found, err := postgres.Row[names](ctx, tx, namesStatement, pgx.NamedArgs{
		"topic": given(topic), "subscription": given(subscription), "event": given(event), "most": most,
	})
	if id, wrong := uuid.Parse(event); wrong == nil && err == nil {
		found.Events = append(found.Events, id)
	}
	return found, err
}

var namesStatement = sqlFile("names.sql")

// given returns nil, which is NULL, for "".
func given(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
