package query

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// DeadLetterQuery selects the dead letters of a page: a filter, and a condition that filters do not have.
type DeadLetterQuery struct {
	DeadLetterFilter
	// WithoutResponse: only those whose last attempt got no response.
	WithoutResponse bool
}

// DeadLetterRow is one dead letter with everything that is kept of it.
type DeadLetterRow struct {
	DeadLetter
	// BodyError is why PostgreSQL cannot hold the body as jsonb.
	BodyError *string
	// SubscriptionGone and EventGone report whether its event subscription or its event no longer exists.
	SubscriptionGone, EventGone bool
	// RedeliveredFromKind is what RedeliveredFrom is, as in DeliveryDetails.
	RedeliveredFromKind string
}

var (
	deadLetterList = list[DeadLetterPlace]{
		sqlFile("dead_letters.sql"), sqlFile("dead_letters_end.sql"), pgx.RowToStructByName[DeadLetterPlace],
	}
	deadLetterFacets    = sqlFile("dead_letter_facets.sql")
	deadLetterStatement = sqlFile("dead_letter.sql")
)

// facetSample is the number of dead letters, the newest that match, that the facets are counted among.
const facetSample = 10_000

// DeadLetterPage is a page of dead letters, without their bodies, with what they have in common.
type DeadLetterPage struct {
	SearchedPage[DeadLetter, DeadLetterPlace]
	// Facets by name: reason, outcome, status, subscription (topic/subscription), day. Each has its ten most frequent
	// values among the newest 10,000 dead letters that match.
	Facets map[string][]Counted
	// Total is the number of dead letters that match, up to 10,000. Partly: only the newest 20,000 were searched.
	Total  int64
	Partly bool
}

func (q *DeadLetterQuery) args() pgx.NamedArgs {
	return pgx.NamedArgs{
		"topic": q.Topic, "subscription": q.Subscription, "reason": q.Reason, "outcome": q.LastOutcome,
		"event_id": q.EventID, "event_type": q.EventType, "status": q.LastStatus, "unanswered": q.WithoutResponse,
		"from": q.DeadLetteredFrom, "until": q.DeadLetteredUntil,
	}
}

// search reports whether no index knows which dead letters the filter matches.
func (q *DeadLetterQuery) search() bool {
	named := (q.Topic == nil) == (q.Subscription == nil)
	return q.EventID == nil && (!named || q.Reason != nil || q.LastOutcome != nil || q.EventType != nil ||
		q.LastStatus != nil || q.WithoutResponse)
}

// ReadDeadLetters reads a page of dead letters, the newest first. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadDeadLetters(
	ctx context.Context, q DeadLetterQuery, t Turn[DeadLetterPlace],
) (d *DeadLetterPage, err error) {
	d = &DeadLetterPage{Facets: map[string][]Counted{}}
	err = r.db.Read(ctx, "dead letters", func(tx pgx.Tx) error {
		d.SearchedPage, err = readPage[DeadLetter](ctx, tx, &deadLetterList, t, q.search(), q.args())
		if err != nil {
			return err
		}
		return d.count(ctx, tx, q)
	})
	return d, err
}

// count counts what the filter matches, whichever page of the list this is.
func (d *DeadLetterPage) count(ctx context.Context, tx pgx.Tx, q DeadLetterQuery) (err error) {
	const top = 10
	args := q.args()
	args["limit"], args["top"] = facetSample, top
	var end *DeadLetterPlace
	if q.search() {
		if end, err = deadLetterList.searchEnd(ctx, tx, args); err != nil {
			return err
		}
	}
	type row struct {
		Facet string
		Counted
	}
	facets, err := postgres.Rows[row](ctx, tx, deadLetterFacets, args)
	for _, facet := range facets {
		d.Facets[facet.Facet] = append(d.Facets[facet.Facet], facet.Counted)
		if facet.Facet == "all" {
			d.Total = facet.Count
		}
	}
	d.Partly = end != nil && d.Total < facetSample
	return err
}

// ReadDeadLetter reads one dead letter; ErrNotFound.
func (r *Reader) ReadDeadLetter(ctx context.Context, id uuid.UUID) (*DeadLetterRow, error) {
	return read(ctx, r, "a dead letter", func(tx pgx.Tx) (*DeadLetterRow, error) {
		return postgres.Row[DeadLetterRow](ctx, tx, deadLetterStatement, pgx.NamedArgs{"id": id})
	})
}
