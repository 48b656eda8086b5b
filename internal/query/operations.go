package query

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

// Operation is a redelivery, repair, resolution, purge, retry, cancellation or erasure of many.
type Operation struct {
	// Id of the operation, a UUID.
	OperationID uuid.UUID `json:"operationId" column:"Id" title:"OPERATION" off:"pages" list:"/v1/operations"`
	CreatedAt   time.Time `json:"createdAt" column:"Started"`
	// What the operation does.
	Kind string `json:"kind" enum:"redeliver,repair,resolve,purge,retry,cancel,redeliver_events,erase_subject" column:"Operation" title:"KIND" class:"long"`
	// Topic of the target event subscription, or of an erasure. Null if each dead letter goes to its own event
	// subscription.
	Topic *string `json:"topic" column:"Topic" in:"subscription"`
	// Target event subscription.
	Subscription *string `json:"subscription" column:"To" title:"SUBSCRIPTION" class:"long"`
	// State. If it is failed, lastError has the cause.
	State  string           `json:"state" enum:"running,done,canceled,failed" column:"State"`
	Filter DeadLetterFilter `json:"filter"`
	// Filter of the deliveries of a retry or a cancellation; absent for other operations.
	DeliveryFilter *DeliveryFilter `json:"deliveryFilter,omitempty"`
	// Members of the events that a repair changes, up to 100, as JSON Pointers; absent for other operations.
	Paths []string `json:"paths,omitempty"`
	// Note of a resolution; absent without one.
	Note           *string    `json:"note,omitempty"`
	PublishedFrom  *time.Time `json:"publishedFrom"`
	PublishedUntil *time.Time `json:"publishedUntil"`
	ExpectedCount  *int64     `json:"expectedCount"`
	// It counts what matches, and has changed nothing yet.
	Counting bool `json:"counting" line:"Counting"`
	// Number of dead letters or deliveries that matched at the start; so far, while counting. Null for past events and
	// erasures.
	Matched *int64 `json:"matched" column:"Matched" in:"done"`
	// Number of redelivered, resolved, purged or erased ones.
	Done int64 `json:"done" column:"Progress" title:"DONE"`
	// Number that another operator purged, resolved or redelivered first, or of past events that do not match the filter.
	Skipped int64 `json:"skipped" column:"Skipped" in:"done"`
	// Number that could not be redelivered because their event subscription was deleted or has expired.
	Failed int64 `json:"failed" column:"Failed"`
	// Last error.
	LastError *string `json:"lastError" line:"Last error"`
	// Time up to which dead letters or events have been processed, approximately.
	ReachedAt *time.Time `json:"reachedAt"`
	// Actor that started it, as in the audit.
	StartedBy string `json:"startedBy" column:"Started by" class:"long"`
	// When it ended; null while it runs.
	FinishedAt    *time.Time `json:"finishedAt" column:"Finished" off:"pages"`
	RatePerSecond *int       `json:"ratePerSecond" column:"Rate" class:"" off:""`
	// Results of the redeliveries; null for a purge or an erasure.
	Outcomes *OperationOutcomes `json:"outcomes"`
}

// OperationOutcomes are the numbers of redeliveries by state; the sum is `done`. GET /v1/deliveries?operationId= lists
// them.
type OperationOutcomes struct {
	// Number of pending deliveries.
	Pending int64 `json:"pending"`
	// Number of delivered ones.
	Delivered int64 `json:"delivered"`
	// Number that became dead letters again.
	DeadLettered int64 `json:"deadLettered"`
	// Number of dropped ones.
	Dropped int64 `json:"dropped"`
	// Number of canceled ones.
	Canceled int64 `json:"canceled"`
}

// OperationRunning is the state of an operation in progress.
const OperationRunning = "running"

// Operation reads one operation; ErrNotFound.
func (r *Reader) Operation(ctx context.Context, id uuid.UUID) (*Operation, error) {
	list, err := postgres.Collect[Operation](ctx, r.db, sql("operations"), pgx.NamedArgs{"id": id, "limit": 1})
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("operation %s: %w", id, postgres.ErrNotFound)
	}
	return &list[0], nil
}

// Operations lists up to limit operations, the newest first, after one of them, or from the beginning for nil.
func (r *Reader) Operations(ctx context.Context, after *Operation, limit int) ([]Operation, error) {
	args := pgx.NamedArgs{"limit": limit}
	if after != nil {
		args["after"], args["after_id"] = after.CreatedAt, after.OperationID
	}
	return postgres.Collect[Operation](ctx, r.db, sql("operations"), args)
}
