package query

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// AuditFilter says which rows of the audit; what is "" or nil leaves all.
type AuditFilter struct {
	Actor, Action, Topic, Subscription string
	// From and To bound their time: not before From, before To.
	From, To *time.Time
}

// AuditLine is one row of the audit.
type AuditLine struct {
	AuditID             int64
	At                  time.Time
	Actor               string
	Address             *string
	Action              string
	Topic, Subscription *string
	Details             string
	Changes             *string // nil where no configuration changed
}

// AuditPage is a page of the audit.
type AuditPage struct {
	Page[AuditLine]
	// LookedTo is where a look ended that found no more than Rows; nil where it went on to the end of the list.
	LookedTo *int64
}

const (
	auditList = `SELECT audit_id, at, actor, address, action, topic, subscription, details::text AS details,
        changes::text AS changes FROM postrider.audit
 WHERE %[3]s AND (@end::bigint IS NULL OR NOT audit_id %[2]s @end) ORDER BY audit_id %[1]s LIMIT @limit`

	// auditEnd is where a look of lookLimit rows ends; no row where that is all.
	auditEnd = `SELECT audit_id FROM postrider.audit WHERE (@cursor::bigint IS NULL OR audit_id %[2]s @cursor)
		ORDER BY audit_id %[1]s OFFSET @look LIMIT 1`
)

// ReadAudit reads a page of the audit, the newest first. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadAudit(ctx context.Context, f AuditFilter, t Turn[int64]) (page AuditPage, err error) {
	err = r.db.Read(ctx, "the audit", func(tx pgx.Tx) error {
		page, err = readAudit(ctx, tx, f, t)
		return err
	})
	return page, err
}

func readAudit(ctx context.Context, tx pgx.Tx, f AuditFilter, t Turn[int64]) (page AuditPage, err error) {
	order, compare := t.way()
	args := t.args(pgx.NamedArgs{
		"actor": f.Actor, "action": f.Action, "topic": f.Topic, "subscription": f.Subscription, "from": f.From, "to": f.To,
		"end": nil, "look": lookLimit,
	})
	if f != (AuditFilter{}) {
		if err := tx.QueryRow(ctx, fmt.Sprintf(auditEnd, order, compare), args).Scan(&page.LookedTo); err != nil &&
			!errors.Is(err, pgx.ErrNoRows) {
			return page, err
		}
		args["end"] = page.LookedTo
	}
	rows, err := postgres.Rows[AuditLine](ctx, tx, fmt.Sprintf(auditList, order, compare, f.where(compare)), args)
	page.Page = pageOf(rows, t)
	if len(rows) > t.Limit {
		page.LookedTo = nil
	}
	return page, err
}

func (f *AuditFilter) where(compare string) string {
	where := []string{fmt.Sprintf("(@cursor::bigint IS NULL OR audit_id %s @cursor)", compare)}
	for _, one := range []struct {
		set       bool
		condition string
	}{
		{f.Actor != "", "actor = @actor"},
		{f.Action != "", "action = @action"},
		{f.Topic != "", "topic = @topic"},
		{f.Subscription != "", "subscription = @subscription"},
		{f.From != nil, "at >= @from"},
		{f.To != nil, "at < @to"},
	} {
		if one.set {
			where = append(where, one.condition)
		}
	}
	return strings.Join(where, " AND ")
}
