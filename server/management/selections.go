package management

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"postrider/access"
	"postrider/operator"
	"postrider/query"
	"postrider/server/api"
	"postrider/sqlquery"
)

// A million ids have 39 MB.
type createSelectionRequest struct {
	Body SelectionSpec `extraBytes:"40894464"`
}

// SelectionSpec names the dead letters or deliveries to select in one way.
type SelectionSpec struct {
	DeadLetterIDs  []uuid.UUID             `json:"deadLetterIds,omitempty" maxItems:"1000000"`
	DeliveryIDs    []int64                 `json:"deliveryIds,omitempty" maxItems:"1000000"`
	Filter         *query.DeadLetterFilter `json:"filter,omitempty"`
	DeliveryFilter *query.DeliveryFilter   `json:"deliveryFilter,omitempty"`
	SQL            string                  `json:"sql,omitempty"`
	// Args are of SQL, and do not count.
	Args []string `json:"args,omitempty"`
}

// CreateSelection responds to POST /v1/selections.
func (m *Handlers) CreateSelection(
	ctx context.Context, r *createSelectionRequest,
) (*api.Created[operator.Selection], error) {
	var found problems
	sources := 0
	for _, given := range []bool{
		r.Body.DeadLetterIDs != nil, r.Body.DeliveryIDs != nil, r.Body.Filter != nil, r.Body.DeliveryFilter != nil,
		r.Body.SQL != "",
	} {
		if given {
			sources++
		}
	}
	if sources != 1 {
		found.Value("deadLetterIds", "give one of deadLetterIds, deliveryIds, filter, deliveryFilter and sql")
	}
	if r.Body.Filter != nil {
		found.filter(r.Body.Filter)
	}
	if f := r.Body.DeliveryFilter; f != nil {
		found.deliveryFilter(f)
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	if who := access.ActorOf(ctx); r.Body.SQL != "" && !who.Query {
		return nil, api.RejectForbidden(who.Name, "sql needs the flag query; %s does not have it", who.Name)
	}
	s, err := m.selected(ctx, &r.Body)
	return &api.Created[operator.Selection]{Body: s}, err
}

func (m *Handlers) selected(ctx context.Context, spec *SelectionSpec) (*operator.Selection, error) {
	switch o := m.Parts.Operator; {
	case spec.DeadLetterIDs != nil:
		return o.SelectDeadLetters(ctx, spec.DeadLetterIDs)
	case spec.DeliveryIDs != nil:
		return o.SelectDeliveries(ctx, spec.DeliveryIDs)
	case spec.Filter != nil:
		return o.SelectFilter(ctx, spec.Filter)
	case spec.SQL != "":
		return o.SelectQuery(ctx, m.Parts.Queries, sqlquery.Request{SQL: spec.SQL, Args: spec.Args}, "")
	default:
		return o.SelectDeliveryFilter(ctx, m.Parts.Reader, *spec.DeliveryFilter)
	}
}

// deliveryFilter checks the filter of deliveries in a body.
func (p *problems) deliveryFilter(f *query.DeliveryFilter) {
	for name, text := range map[string]string{
		"topic": f.Topic, "subscription": f.Subscription, "state": f.State, "hold": f.Hold, "lastOutcome": f.Outcome,
		"eventId": f.Event,
	} {
		if !api.Storable(text) {
			p.Value("deliveryFilter."+name, "must be UTF-8 without the character 0")
		}
	}
	if f.State != "" && !slices.Contains(query.DeliveryStates, f.State) {
		p.Value("deliveryFilter.state", "must be one of %v, not %q", query.DeliveryStates, api.Shorten(f.State))
	}
	if f.Hold != "" && !slices.Contains(query.HoldReasons, f.Hold) {
		p.Value("deliveryFilter.hold", "must be one of %v, not %q", query.HoldReasons, api.Shorten(f.Hold))
	}
	if f.From != nil && f.To != nil && !f.From.Before(*f.To) {
		p.Value("deliveryFilter.publishedFrom", "must be before publishedUntil")
	}
}

// SelectionPath names a selection.
type SelectionPath struct {
	ID uuid.UUID `path:"selectionId" example:"0198c5a4-2b7e-7f31-8c40-6d1e9a2b3c50"`
}

// SelectionPreview is a selection and what its items are now.
type SelectionPreview struct {
	operator.Selection
	query.Selected
}

// GetSelection responds to GET /v1/selections/{selectionId}.
func (m *Handlers) GetSelection(ctx context.Context, r *SelectionPath) (*SelectionPreview, error) {
	s, err := m.Parts.Operator.Selection(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	selected, err := m.Parts.Reader.ReadSelected(ctx, s.ID, s.Kind == operator.SelectedDeliveries)
	if err != nil {
		return nil, err
	}
	return &SelectionPreview{*s, *selected}, nil
}

// RateSpec limits an operation.
type RateSpec struct {
	RatePerSecond *int `json:"ratePerSecond,omitempty" minimum:"1"`
}

type actOnSelectionRequest struct {
	SelectionPath
	Body RateSpec `required:"false"`
}

// RedeliverSelectionSpec are the options of a redelivery of a selection.
type RedeliverSelectionSpec struct {
	RedeliverTarget
	RateSpec
	Again bool `json:"again,omitempty" default:"false"`
}

type redeliverSelectionRequest struct {
	SelectionPath
	Body RedeliverSelectionSpec `required:"false"`
}

// RedeliverSelection responds to POST /v1/selections/{selectionId}/redeliver.
func (m *Handlers) RedeliverSelection(
	ctx context.Context, r *redeliverSelectionRequest,
) (*api.Accepted[query.Operation], error) {
	var found problems
	do := operator.Action{
		Kind: operator.Redeliver, To: found.target(r.Body.RedeliverTarget), Again: r.Body.Again,
		Rate: found.rate(r.Body.RatePerSecond),
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	return m.actOnSelection(ctx, r.ID, &do)
}

// ActOnSelection responds to POST /v1/selections/{selectionId}/purge, retry and cancel, whose only option is the rate.
func (m *Handlers) ActOnSelection(
	kind string,
) func(context.Context, *actOnSelectionRequest) (*api.Accepted[query.Operation], error) {
	return func(ctx context.Context, r *actOnSelectionRequest) (*api.Accepted[query.Operation], error) {
		var found problems
		do := operator.Action{Kind: kind, Rate: found.rate(r.Body.RatePerSecond)}
		if err := found.Err(); err != nil {
			return nil, err
		}
		return m.actOnSelection(ctx, r.ID, &do)
	}
}

func (m *Handlers) actOnSelection(
	ctx context.Context, selection uuid.UUID, do *operator.Action,
) (*api.Accepted[query.Operation], error) {
	id, err := m.Parts.Operator.ActOnSelection(ctx, selection, do)
	if err != nil {
		return nil, err
	}
	o, err := m.Parts.Reader.Operation(ctx, id)
	return &api.Accepted[query.Operation]{Body: o}, err
}

type exportSelectionRequest struct {
	SelectionPath
	Format string `query:"format" enum:"eventgrid,rows" default:"eventgrid"`
	api.PageParams
}

// ExportSelection responds to GET /v1/selections/{selectionId}/export.
func (m *Handlers) ExportSelection(ctx context.Context, r *exportSelectionRequest) (*ExportedDeadLetters, error) {
	s, err := m.Parts.Operator.Selection(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if s.Kind != operator.SelectedDeadLetters {
		return nil, api.Invalid("selectionId", "must have dead letters: deliveries cannot be exported")
	}
	after := 0
	if err := api.ReadCursor(r.Cursor, &after); err != nil {
		return nil, err
	}
	const step = 50
	page := exportPage{limit: r.Limit, format: r.Format, records: []json.RawMessage{}}
	for before := -1; before < after; {
		before = after
		after, err = query.EachSelected(ctx, m.Parts.DB.Pool, s.ID, after, step, page.add)
		if errors.Is(err, errPageFull) {
			next := api.NextLink(fmt.Sprintf("/v1/selections/%s/export", s.ID), r, after)
			return &ExportedDeadLetters{Value: page.records, NextLink: next}, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return &ExportedDeadLetters{Value: page.records}, nil
}

type listOperationResultsRequest struct {
	OperationPath
	api.PageParams
}

// ListOperationResults responds to GET /v1/operations/{operationId}/results.
func (m *Handlers) ListOperationResults(
	ctx context.Context, r *listOperationResultsRequest,
) (*api.List[query.OperationResult], error) {
	if _, err := m.Parts.Reader.Operation(ctx, r.ID); err != nil {
		return nil, err
	}
	return api.ListAfter(ctx, fmt.Sprintf("/v1/operations/%s/results", r.ID), r,
		func(ctx context.Context, after, limit int) ([]query.OperationResult, error) {
			return m.Parts.Reader.OperationResults(ctx, r.ID, after, limit)
		}, func(o query.OperationResult) int { return o.Position })
}
