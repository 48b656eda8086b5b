package query

import (
	"cmp"
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

// EventFilter selects events; "" or nil = all.
type EventFilter struct {
	Topic string `query:"topic" label:"Topic"`
	// Id of the event, from the publisher or in postrider.
	Event         string `query:"eventId" name:"event-id" label:"Event id" sqluuid:"system_id = ?"`
	Type          string `query:"eventType" name:"event-type" label:"Event type"`
	Subject       string `query:"subject"`
	SubjectPrefix string `query:"subjectPrefix" label:"Subject begins with" sql:"starts_with(subject, ?)"`
	// Only events that match no event subscription.
	Unmatched bool `query:"unmatched" default:"false" label:"Unmatched only" sql:"matched = 0"`
	// Only events with this text or number as a value, at any place.
	//
	// No index has the values: a page searches for up to 4 s, the newest event first. Set a time, too.
	Data string `query:"data" label:"Value in data" sql:"postrider.has_value(body, ?)"`
	// Published at this time or later.
	From *time.Time `query:"publishedFrom"`
	// Published before this time.
	To *time.Time `query:"publishedUntil" name:"until" aliases:"to"`
	// States: also count the deliveries of each event by their state.
	States bool `kong:"-"`
	// OrSubject: events whose subject begins with Data match, too.
	OrSubject bool `kong:"-"`
}

// EventLine is one event in a list, without its body.
type EventLine struct {
	PublishedAt time.Time `json:"publishedAt" column:"Published"`
	EventType   string    `json:"eventType" column:"Type" class:"long"`
	// Subject of the event; empty without one.
	Subject string `json:"subject" column:"Subject" class:"long"`
	EventID string `json:"eventId" column:"Event id" class:"long"`
	Topic   string `json:"topic" column:"Topic" class:"long"`
	// States counts its deliveries by state; nil unless the filter requests it.
	States []Counted `db:"-" json:"-" column:"Deliveries" class:"long wide" sql:"(select jsonb_object_agg(state, n) from (select state, count(*) as n\n          from postrider.deliveries d where d.system_id = events.system_id group by state) s) as deliveries"`
	// Size in bytes.
	BodyBytes int `json:"bodyBytes" column:"Size" title:"BYTES" class:"number spare"`
	// Number of matching event subscriptions; null if it was published by SQL and is not routed yet.
	Matched   *int       `json:"matched" column:"Matched" off:"pages" none:"not routed yet"`
	Source    *string    `json:"source" column:"Source" class:"long" off:""`
	EventTime *time.Time `json:"eventTime" column:"Event time" off:""`
	Schema    string     `json:"schema" column:"Schema" off:""`
	// Id of the event in postrider, a UUID. Deliveries have it in the header aeg-output-event-id.
	SystemID uuid.UUID `json:"systemId" column:"System id" off:"pages" list:"/v1/events"`
	Lineage
}

// EventRow is a published event.
type EventRow struct {
	EventLine
	TopicID     int64  `json:"-"`
	TopicGone   bool   `json:"-"`
	DataVersion string `json:"-"`
	// Trace context of the publish; absent without one, and in lists.
	Traceparent *string `json:"traceparent,omitempty"`
	// State of the trace context; absent without one, and in lists.
	Tracestate *string `json:"tracestate,omitempty"`
	// Version of the filters that were applied; absent while matched is null, and in lists.
	FilterVersion *int64 `json:"filterVersion,omitempty"`
	// Why PostgreSQL cannot store it as jsonb; absent if it can, and in lists.
	BodyError *string `json:"bodyError,omitempty" line:"Not JSON in PostgreSQL"`
	// When it was erased; absent if it was not, and in lists.
	ErasedAt *time.Time `json:"erasedAt,omitempty" line:"Erased"`
	// The event as it was accepted; absent if it was erased, and in lists.
	Body json.RawMessage `json:"event,omitempty" line:"Event"`
	// Its newest 200 deliveries, redeliveries included; absent in lists. `GET /v1/deliveries?eventId=` has all.
	Deliveries []DeliveryLine `db:"-" json:"deliveries,omitzero"`
}

// ReadEvents reads a page of events, the newest first. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadEvents(
	ctx context.Context, f EventFilter, t Turn[uuid.UUID],
) (page SearchedPage[EventLine, uuid.UUID], err error) {
	now := r.clock.Now()
	list := func(r *reading) {
		names := readNames(r, f.Topic, "", f.Event, 0)
		args := pgx.NamedArgs{
			"topics": names.Topics, "events": names.Events, "type": given(f.Type), "subject": given(f.Subject),
			"prefix": given(f.SubjectPrefix), "unmatched": f.Unmatched,
		}
		f.bindValue(args)
		bindSpan(args, f.From, f.To)
		search := f.Event == "" && (f.Topic+f.Type+f.Subject+f.SubjectPrefix != "" || f.Unmatched)
		if f.Data != "" {
			page = searchValues(r, t, args)
		} else {
			page = readPage[EventLine](r, "events", t, search, args)
		}
		if f.States {
			readStates(r, page.Rows, now)
		}
	}
	if f.Data != "" {
		return page, r.search(ctx, valueTime, "events", list)
	}
	return page, read(ctx, r.db, "events", list)
}

const (
	// valueTime is how long a page searches for a value, and how long one step of the search may take at most.
	valueTime = 4 * time.Second
	// valueStep is the number of events of the first and of the smallest step.
	valueStep = 50
)

// nextStep is the number of events of the next step, by what the last one took: a step reads bodies of up to 1 MB.
func nextStep(step int, took time.Duration) int {
	switch {
	case took < 100*time.Millisecond:
		return min(2*step, searchLimit)
	case took > 400*time.Millisecond:
		return max(step/4, valueStep)
	}
	return step
}

// searchValues reads a page of the events that have a value, for up to valueTime. It ends before a step that takes too
// long, unless that is the first one.
func searchValues(r *reading, t Turn[uuid.UUID], args pgx.NamedArgs) SearchedPage[EventLine, uuid.UUID] {
	var found []EventLine
	args["backwards"] = t.After != nil
	cursor, step := cmp.Or(t.After, t.Before), valueStep
	for began, first := time.Now(), true; ; first = false {
		beganStep := time.Now()
		args["limit"], args["end"], args["search"] = t.Limit+1-len(found), nil, step
		bindKey(args, "cursor", cursor)
		more, end, err := r.valueStep(args)
		if !first && postgres.SQLState(err) == "57014" { // query_canceled
			return pageOf(found, t, cursor)
		}
		found = append(found, more...)
		if r.err = err; err != nil || end == nil || len(found) > t.Limit || time.Since(began) > valueTime {
			return pageOf(found, t, end)
		}
		cursor, step = end, nextStep(step, time.Since(beganStep))
	}
}

// valueStep reads one step of a search for a value, and the event that it ends with; nil at the end of the list. The
// transaction can go on after an error.
func (r *reading) valueStep(args pgx.NamedArgs) (found []EventLine, end *uuid.UUID, err error) {
	err = pgx.BeginFunc(r.ctx, r.tx, func(tx pgx.Tx) error {
		inner := &reading{ctx: r.ctx, tx: tx}
		end = searchEnd[uuid.UUID](inner, "events", args)
		found = rows[EventLine](inner, "events", args)
		return inner.err
	})
	return found, end, err
}

// plainValue is a value that JSON texts have as it is: without characters that some programs escape.
var plainValue = regexp.MustCompile(`^[A-Za-z0-9 _.:,;@#|=*+~^()\[\]{}!?$%-]+$`)

// fraction is a number with decimal places.
var fraction = regexp.MustCompile(`^-?[0-9]+[.][0-9]+$`)

// bindValue binds the value to search for. Bodies without the bytes of @needle are not parsed.
func (f *EventFilter) bindValue(args pgx.NamedArgs) {
	args["value"], args["needle"], args["or_subject"] = nil, nil, nil
	if f.Data == "" {
		return
	}
	args["value"] = f.Data
	if plainValue.MatchString(f.Data) {
		needle := f.Data
		if fraction.MatchString(needle) { // 5.0 is also 5, and 2.50 also 2.5
			needle = strings.TrimRight(strings.TrimRight(needle, "0"), ".")
		}
		args["needle"] = []byte(needle)
	}
	if f.OrSubject {
		args["or_subject"] = f.Data
	}
}

// readStates reads how many deliveries of each event are in each state. The days limit the partitions that are read.
func readStates(r *reading, events []EventLine, today time.Time) {
	if len(events) == 0 {
		return
	}
	ids, lines, day := make([]uuid.UUID, len(events)), map[uuid.UUID]*EventLine{}, events[0].PublishedAt
	for i := range events {
		e := &events[i]
		ids[i], lines[e.SystemID] = e.SystemID, e
		if e.PublishedAt.Before(day) {
			day = e.PublishedAt
		}
	}
	type counted struct {
		SystemID uuid.UUID
		Counted
	}
	args := pgx.NamedArgs{"events": ids, "day": day.UTC(), "today": today.UTC()}
	for _, c := range rows[counted](r, "event_states", args) {
		lines[c.SystemID].States = append(lines[c.SystemID].States, c.Counted)
	}
}

// bindSpan binds a time of publishing, and the ids that events of that time can have.
func bindSpan(args pgx.NamedArgs, from, to *time.Time) {
	if args["from"], args["to"] = from, to; from != nil {
		args["from_id"] = firstID(from.Add(-idSlack))
	}
	if to != nil {
		args["to_id"] = firstID(to.Add(idSlack))
	}
}

// ReadEvent reads one event by postrider's own id, with its deliveries; ErrNotFound.
func (r *Reader) ReadEvent(ctx context.Context, id uuid.UUID) (*EventRow, error) {
	var e EventRow
	err := read(ctx, r.db, "an event", func(r *reading) {
		e = row[EventRow](r, "event", pgx.NamedArgs{"id": id})
		of := DeliveryFilter{Event: id.String(), Errors: true}
		e.Deliveries = readDeliveries(r, of, Turn[DeliveryPlace]{Limit: 200}).Rows
	})
	return &e, err
}
