package management

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"postrider/postgres"
	"postrider/query"
	"postrider/server/api"
)

// ListActivityRequest is the request GET /v1/activity.
type ListActivityRequest struct {
	Topic        string  `query:"topic"`
	Subscription string  `query:"subscription"`
	Cursor       *string `query:"cursor"`
}

// RecentActivity has the published events and recorded attempts since the previous page.
type RecentActivity struct {
	Value    []Activity `json:"value"`
	NextLink string     `json:"nextLink"`
}

// Activity is a published event or a recorded attempt.
type Activity struct {
	At           time.Time  `json:"at"`
	Kind         string     `json:"kind" enum:"published,attempt"`
	Topic        string     `json:"topic"`
	EventID      string     `json:"eventId"`
	EventType    string     `json:"eventType"`
	Subject      string     `json:"subject"`
	SystemID     *uuid.UUID `json:"systemId"`
	Subscription *string    `json:"subscription"`
	DeliveryID   *int64     `json:"deliveryId"`
	BatchID      *int64     `json:"batchId"`
	Number       *int       `json:"number"`
	Status       *int       `json:"status"`
	Outcome      *string    `json:"outcome"`
	Verdict      *string    `json:"verdict"`
	State        *string    `json:"state"`
	DurationMs   *float64   `json:"durationMs"`
	Place        string     `json:"place"`
}

// ListActivity responds to GET /v1/activity.
func (m *Handlers) ListActivity(ctx context.Context, r *ListActivityRequest) (*RecentActivity, error) {
	if r.Subscription != "" && r.Topic == "" {
		return nil, api.Invalid("topic", "is required with subscription")
	}
	after, err := api.ReadCursor(r.Cursor)
	if err != nil {
		return nil, err
	}
	f := query.TailFilter{Topic: r.Topic, Subscription: r.Subscription}
	tail := m.Parts.Reader.NewTail(f)
	if r.Cursor != nil {
		tail, err = m.Parts.Reader.ResumeTail(f, after)
		if errors.Is(err, postgres.ErrInvalid) {
			return nil, api.InvalidCursor()
		}
	}
	if err != nil {
		return nil, err
	}
	lines, err := tail.Next(ctx)
	if err != nil {
		return nil, err
	}
	recent := RecentActivity{
		Value: make([]Activity, len(lines)), NextLink: *api.NextLink("/v1/activity", api.QueryOf(r), tail.Mark()),
	}
	for i := range lines {
		recent.Value[i] = activityView(&lines[i])
	}
	return &recent, nil
}

// stateAfter is the state of a delivery after an attempt by the verdict.
var stateAfter = map[string]string{
	"deliver": "delivered", "retry": "pending", "dead_letter": "dead_lettered", "drop": "dropped",
}

func activityView(l *query.TailLine) Activity {
	shown := Activity{
		At: l.At, Kind: l.Kind, Topic: l.Topic, EventID: l.EventID, EventType: l.Type, Subject: l.Subject,
		SystemID: l.SystemID, Place: l.Place,
	}
	if l.Kind == "attempt" {
		shown.Subscription, shown.Number = &l.Subscription, &l.Number
		shown.DeliveryID, shown.BatchID = l.DeliveryID, l.BatchID
		shown.Status, shown.Outcome, shown.Verdict = l.Status, &l.Outcome, &l.Verdict
		shown.State, shown.DurationMs = textOrNull(stateAfter[l.Verdict]), &l.DurationMs
	}
	return shown
}
