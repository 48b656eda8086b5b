package event

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"postrider/jsonscan"
)

// DeadLetter is an event that was given up, and what Event Grid tells of that.
type DeadLetter struct {
	// Event is read as AppendDelivery reads it.
	Event Event
	// Topic is the name of the event's topic.
	Topic string
	// Delivery is the delivery schema of the event subscription that did not get it.
	Delivery Schema
	// Reason is why it was given up: a word, or in a namespace's record a sentence.
	Reason string
	// Attempts is how many were made.
	Attempts int
	// Outcome is what the last attempt came to; "" where none was made.
	Outcome string
	// Status is the last answer's; 0 = there was none.
	Status int
	// PublishedAt is when the event was accepted, LastAttemptAt when the last attempt began; zero where none was made.
	PublishedAt, LastAttemptAt time.Time
}

// DeadLetterForm is how a dead letter is written for a place outside.
type DeadLetterForm int

const (
	// DeadLetterFlat has what is told of the dead letter beside the event's own members: the form of custom topics. A
	// CloudEvent has the names in small letters. Source: Microsoft, Event Grid message delivery and retry, 2020-10-29,
	// "Dead-letter events"; lastHttpStatusCode is on no page, and in real dead letters.
	DeadLetterFlat DeadLetterForm = iota
	// DeadLetterNested has the event, a CloudEvent, in a member of its own: the form of namespace topics.
	// Source: Microsoft, Event Grid namespace push delivery and retry, 2023-11.
	DeadLetterNested
)

// deadLetterTime is a time as Event Grid writes it in dead letters: seven digits of a second, UTC.
const deadLetterTime = "2006-01-02T15:04:05.0000000Z"

// deadLetterNames are what a member is called in the Event Grid schema, in CloudEvents, and in a namespace's record.
type deadLetterNames struct{ reason, attempts, outcome, status, published, attempted string }

var (
	besideEventGrid = deadLetterNames{
		"deadLetterReason", "deliveryAttempts", "lastDeliveryOutcome", "lastHttpStatusCode", "publishTime",
		"lastDeliveryAttemptTime",
	}
	besideCloudEvents = deadLetterNames{
		"deadletterreason", "deliveryattempts", "lastdeliveryoutcome", "lasthttpstatuscode", "publishtime",
		"lastdeliveryattempttime",
	}
	around = deadLetterNames{
		"deadletterreason", "deliveryattempts", "deliveryresult", "", "publishutc", "deliveryattemptutc",
	}
)

// AppendDeadLetter appends one dead letter to dst, as a JSON object. The event is as it would have been delivered, but
// for two: a custom event that is delivered as it was received has no place for what is told of it, and is written in
// the Event Grid schema; and whatever the event itself has under one of the names is left away, as when somebody has
// published a dead letter again. What is not known is left out. It fails, returning dst unchanged, wherever
// AppendDelivery does.
func AppendDeadLetter(dst []byte, d *DeadLetter, form DeadLetterForm) ([]byte, error) {
	schema := d.recordSchema(form)
	event, err := AppendDelivery(nil, &d.Event, d.Topic, schema)
	if err != nil {
		return dst, fmt.Errorf("dead letter: %w", err)
	}
	if form == DeadLetterNested {
		record := dst
		record = append(record, `{"deadLetterProperties":{`...)
		record = d.appendMembers(record, &around, true)
		record = append(append(record, `},"event":`...), event...)
		return append(record, '}'), nil
	}
	names := &besideEventGrid
	if schema == CloudEvents {
		names = &besideCloudEvents
	}
	record, first, err := names.appendOthers(append(dst, '{'), event)
	if err != nil {
		return dst, err
	}
	return append(d.appendMembers(record, names, first), '}'), nil
}

// recordSchema is the schema of the event in its record.
func (d *DeadLetter) recordSchema(form DeadLetterForm) Schema {
	if form == DeadLetterNested || d.Delivery == CloudEvents || d.Event.Schema == CloudEvents {
		return CloudEvents
	}
	return EventGrid
}

// appendOthers copies the event's members that have none of the names; first tells that there were none.
func (n *deadLetterNames) appendOthers(dst, event []byte) (record []byte, first bool, err error) {
	members, at, problem := readObject(event, 0, nil)
	if problem != "" {
		return dst, false, fmt.Errorf("dead letter: the event is not a JSON object at byte %d: %s", at, problem)
	}
	first = true
	for _, m := range members {
		name, _ := jsonscan.Unescape(m.name)
		if n.has(name) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(append(dst, '"'), m.name...), `":`...)
		dst = append(dst, event[m.value.start:m.value.end]...)
	}
	return dst, first, nil
}

func (n *deadLetterNames) has(name []byte) bool {
	for _, own := range [...]string{n.reason, n.attempts, n.outcome, n.status, n.published, n.attempted} {
		if bytes.Equal(name, []byte(own)) {
			return true
		}
	}
	return false
}

func (d *DeadLetter) appendMembers(dst []byte, n *deadLetterNames, first bool) []byte {
	dst = appendMember(dst, first, n.reason, d.Reason)
	dst = appendNumber(dst, n.attempts, d.Attempts)
	if d.Outcome != "" {
		dst = appendMember(dst, false, n.outcome, d.Outcome)
	}
	if d.Status != 0 && n.status != "" {
		dst = appendNumber(dst, n.status, d.Status)
	}
	dst = appendMember(dst, false, n.published, d.PublishedAt.UTC().Format(deadLetterTime))
	if !d.LastAttemptAt.IsZero() {
		dst = appendMember(dst, false, n.attempted, d.LastAttemptAt.UTC().Format(deadLetterTime))
	}
	return dst
}

func appendNumber(dst []byte, name string, n int) []byte {
	return strconv.AppendInt(append(appendQuoted(append(dst, ','), name), ':'), int64(n), 10)
}
