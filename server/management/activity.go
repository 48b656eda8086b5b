package management

import (
	"context"
	"errors"

	"postrider/postgres"
	"postrider/query"
	"postrider/server/api"
)

// stateAfter is the state of a delivery after an attempt with this verdict.
var stateAfter = map[string]string{
	"deliver": "delivered", "retry": "pending", "dead_letter": "dead_lettered", "drop": "dropped",
}

// ListActivity answers GET /v1/activity.
func (m *Handlers) ListActivity(
	ctx context.Context, r api.ListActivityRequestObject,
) (api.ListActivityResponseObject, error) {
	p := r.Params
	var found problems
	f := query.TailFilter{Topic: found.text("topic", p.Topic), Subscription: found.text("subscription", p.Subscription)}
	if f.Subscription != "" && f.Topic == "" {
		found.Value("topic", "is required with subscription")
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	page, err := api.ReadPage(nil, p.Cursor)
	if err != nil {
		return nil, err
	}
	tail := m.Parts.Reader.NewTail(f)
	if p.Cursor != nil {
		tail, err = m.Parts.Reader.ResumeTail(f, page.After)
		if errors.Is(err, postgres.ErrInvalid) {
			return nil, api.Invalid("cursor", "must be one that a nextLink had")
		}
	}
	if err != nil {
		return nil, err
	}
	lines, err := tail.Next(ctx)
	if err != nil {
		return nil, err
	}
	shown := described(lines, describeActivity)
	return api.ListActivity200JSONResponse{Value: shown, NextLink: *linkTo("/v1/activity", p, 0, tail.Mark())}, nil
}

func describeActivity(l *query.TailLine) api.Activity {
	shown := api.Activity{
		At: l.At.UTC(), Kind: l.Kind, Topic: l.Topic, EventId: l.EventID, EventType: l.Type, Subject: l.Subject,
		Place: l.Place,
	}
	if l.SystemID != nil {
		shown.SystemId = new(l.SystemID.String())
	}
	if l.Kind == "attempt" {
		shown.Subscription, shown.DeliveryId, shown.BatchId, shown.Number = &l.Subscription, l.DeliveryID,
			l.BatchID, &l.Number
		shown.Status, shown.Outcome, shown.Verdict = l.Status, &l.Outcome, &l.Verdict
		shown.State, shown.DurationMs = textOrNull(stateAfter[l.Verdict]), &l.DurationMs
	}
	return shown
}
