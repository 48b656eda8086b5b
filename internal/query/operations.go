package query

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

// Operation is a bulk operation: a redelivery, a repair, a purge, a retry, a cancellation or an erasure of many.
type Operation struct {
	OperationID uuid.UUID        `json:"operationId"`
	Kind        string           `json:"kind" enum:"redeliver,repair,purge,retry,cancel,redeliver_events,erase_subject"`
	State       string           `json:"state" enum:"running,done,canceled,failed"`
	Filter      DeadLetterFilter `json:"filter"`
	// DeliveryFilter is instead of Filter that of a retry or a cancellation.
	DeliveryFilter *DeliveryFilter `json:"deliveryFilter,omitempty"`
	Topic          *string         `json:"topic"`
	Subscription   *string         `json:"subscription"`
	// Paths are the members of events that a repair changes, as JSON Pointers; nil for other operations.
	Paths          []string   `json:"paths,omitempty"`
	PublishedFrom  *time.Time `json:"publishedFrom"`
	PublishedUntil *time.Time `json:"publishedUntil"`
	RatePerSecond  *int       `json:"ratePerSecond"`
	// ExpectedCount must match, or the operation fails and changes nothing; nil = any number.
	ExpectedCount *int64 `json:"expectedCount"`
	// Counting: it counts what matches, and has changed nothing yet.
	Counting bool `json:"counting"`
	// Matched is nil for past events and erasures.
	Matched   *int64  `json:"matched"`
	Done      int64   `json:"done"`
	Skipped   int64   `json:"skipped"`
	Failed    int64   `json:"failed"`
	LastError *string `json:"lastError"`
	// ReachedAt is its progress: a time of dead-lettering, or of publishing.
	ReachedAt  *time.Time `json:"reachedAt"`
	StartedBy  string     `json:"startedBy"`
	CreatedAt  time.Time  `json:"createdAt"`
	FinishedAt *time.Time `json:"finishedAt"`
	// Outcomes are the states of its redeliveries; nil for a purge or an erasure.
	Outcomes *OperationOutcomes `json:"outcomes"`
}

// OperationOutcomes counts the redeliveries of an operation by their state.
type OperationOutcomes struct {
	Pending      int64 `json:"pending"`
	Delivered    int64 `json:"delivered"`
	DeadLettered int64 `json:"deadLettered"`
	Dropped      int64 `json:"dropped"`
	Canceled     int64 `json:"canceled"`
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
