package management

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"postrider/postgres"
	"postrider/query"
	"postrider/server/api"
)

// ListEvents answers GET /v1/events.
func (m *Handlers) ListEvents(
	ctx context.Context, r api.ListEventsRequestObject,
) (api.ListEventsResponseObject, error) {
	p := r.Params
	turn, err := readTurn(p.Limit, p.Cursor, uuid.Parse)
	if err != nil {
		return nil, err
	}
	var found problems
	f := query.EventFilter{
		Topic: found.text("topic", p.Topic), Event: found.text("eventId", p.EventId),
		Type: found.text("eventType", p.EventType), Subject: found.text("subject", p.Subject),
		SubjectPrefix: found.text("subjectPrefix", p.SubjectPrefix), Unmatched: optional(p.Unmatched, false),
	}
	f.From, f.To = found.span("publishedFrom", p.PublishedFrom, "publishedUntil", p.PublishedUntil)
	if err := found.Err(); err != nil {
		return nil, err
	}
	page, err := m.Parts.Reader.ReadEvents(ctx, f, turn)
	if err != nil {
		return nil, err
	}
	id := func(l query.EventLine) uuid.UUID { return l.SystemID }
	return api.ListEvents200JSONResponse{Value: described(page.Rows, DescribeEvent), NextLink: nextOf("/v1/events", p,
		turn.Limit, page, id, idText)}, nil
}

// GetEvent answers GET /v1/events/{systemId}.
func (m *Handlers) GetEvent(ctx context.Context, r api.GetEventRequestObject) (api.GetEventResponseObject, error) {
	id, err := uuid.Parse(r.SystemId)
	if err != nil {
		return nil, api.Invalid("systemId", "must be a UUID, as events have it; it is not the publisher's id")
	}
	row, err := m.Parts.Reader.ReadEvent(ctx, id)
	if errors.Is(err, postgres.ErrNotFound) {
		return nil, api.Refuse(http.StatusNotFound, api.CodeNotFound, "event %s does not exist, or is not kept any more", id)
	}
	if err != nil {
		return nil, err
	}
	return api.GetEvent200JSONResponse(DescribeWholeEvent(row)), nil
}

// DescribeEvent is an event as the lists of the REST API and `event list -o json` write it.
func DescribeEvent(l *query.EventLine) api.Event {
	return api.Event{
		SystemId: l.SystemID.String(), Topic: l.Topic, EventId: l.EventID, EventType: l.EventType, Subject: l.Subject,
		Source: l.Source, EventTime: utcOrNull(l.EventTime),
		PublishedAt: l.PublishedAt.UTC(), Schema: l.Schema, Matched: l.Matched, BodyBytes: l.BodyBytes,
	}
}

// DescribeWholeEvent is it with its body and its deliveries.
func DescribeWholeEvent(e *query.EventRow) api.Event {
	shown := DescribeEvent(&e.EventLine)
	shown.Traceparent, shown.Tracestate, shown.FilterVersion, shown.BodyError, shown.ErasedAt = e.Traceparent,
		e.Tracestate, e.FilterVersion, e.BodyError, utcOrNull(e.ErasedAt)
	if e.ErasedAt == nil {
		shown.Event = json.RawMessage(e.Body)
	}
	shown.Deliveries = new(described(e.Deliveries, DescribeDelivery))
	return shown
}
