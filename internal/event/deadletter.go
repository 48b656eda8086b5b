package event

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"postrider/internal/jsonscan"
)

// DeadLetter is an event that could not be delivered, and what Event Grid reports about it.
type DeadLetter struct {
	// Event is read as AppendDelivery reads it.
	Event Event
	// Topic is the name of the event's topic.
	Topic string
	// Delivery is the delivery schema of the event subscription.
	Delivery Schema
	// Reason is why it was dead-lettered: a word, or in a namespace's record a sentence.
	Reason string
	// Attempts is how many were made.
	Attempts int
	// Outcome is that of the last attempt; "" if none was made.
	Outcome string
	// Status is that of the last response; 0 = there was none.
	Status int
	// PublishedAt is when the event was accepted, LastAttemptAt when the last attempt began; zero if none was made.
	PublishedAt, LastAttemptAt time.Time
}

// DeadLetterForm is the form of an exported dead letter.
type DeadLetterForm int

const (
	// DeadLetterFlat adds the properties of the dead letter to the event's own members: the form of custom topics. Their
	// names are in lower case in CloudEvents. Source: Microsoft, Event Grid message delivery and retry, 2020-10-29,
	// "Dead-letter events"; lastHttpStatusCode is on no page, but in real dead letters.
	DeadLetterFlat DeadLetterForm = iota
	// DeadLetterNested has the event, a CloudEvent, in a member of its own: the form of namespace topics.
	// Source: Microsoft, Event Grid namespace push delivery and retry, 2023-11.
	DeadLetterNested
)

// deadLetterTime is a time as Event Grid writes it in dead letters: seven digits of a second, UTC.
const deadLetterTime = "2006-01-02T15:04:05.0000000Z"

// deadLetterNames are the names of reason, attempts, outcome, status, publish time and time of the last attempt; "" =
// not written.
type deadLetterNames [6]string

var (
	flatEventGrid = deadLetterNames{
		"deadLetterReason", "deliveryAttempts", "lastDeliveryOutcome", "lastHttpStatusCode", "publishTime",
		"lastDeliveryAttemptTime",
	}
	flatCloudEvents = deadLetterNames{
		"deadletterreason", "deliveryattempts", "lastdeliveryoutcome", "lasthttpstatuscode", "publishtime",
		"lastdeliveryattempttime",
	}
	nested = deadLetterNames{
		"deadletterreason", "deliveryattempts", "deliveryresult", "", "publishutc", "deliveryattemptutc",
	}
)

// AppendDeadLetter appends one dead letter to dst, as a JSON object. The event is as it would have been delivered, with
// two exceptions: a custom event that is delivered as received is written in the Event Grid schema; and members of the
// event that have the name of a property are left out, as when a dead letter was published again. Unknown properties
// are left out. It fails, returning dst unchanged, if AppendDelivery does.
func AppendDeadLetter(dst []byte, d *DeadLetter, form DeadLetterForm) ([]byte, error) {
	schema, names := EventGrid, &flatEventGrid
	if form == DeadLetterNested || d.Delivery == CloudEvents || d.Event.Schema == CloudEvents {
		schema, names = CloudEvents, &flatCloudEvents
	}
	event, err := AppendDelivery(nil, &d.Event, d.Topic, schema)
	if err != nil {
		return dst, fmt.Errorf("dead letter: %w", err)
	}
	if form == DeadLetterNested {
		record := dst
		record = d.appendProperties(append(record, `{"deadLetterProperties":{`...), &nested)
		record = append(append(record, `},"event":`...), event...)
		return append(record, '}'), nil
	}
	record, err := names.appendOthers(append(dst, '{'), event)
	if err != nil {
		return dst, err
	}
	return append(d.appendProperties(record, names), '}'), nil
}

// appendOthers copies the event's members that have none of the names.
func (n *deadLetterNames) appendOthers(dst, event []byte) ([]byte, error) {
	members, at, problem := readObject(event, 0, nil)
	if problem != "" {
		return dst, fmt.Errorf("dead letter: the event is not a JSON object at byte %d: %s", at, problem)
	}
	for _, m := range members {
		name, _ := jsonscan.Unescape(m.name)
		if slices.Contains(n[:], string(name)) {
			continue
		}
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), m.name...), `":`...)
		dst = append(dst, event[m.value.start:m.value.end]...)
	}
	return dst, nil
}

func (d *DeadLetter) appendProperties(dst []byte, n *deadLetterNames) []byte {
	number := func(name string, n int) {
		dst = strconv.AppendInt(append(appendQuoted(append(dst, ','), name), ':'), int64(n), 10)
	}
	dst = appendMembers(dst, n[0], d.Reason)
	number(n[1], d.Attempts)
	if d.Outcome != "" {
		dst = appendMembers(dst, n[2], d.Outcome)
	}
	if d.Status != 0 && n[3] != "" {
		number(n[3], d.Status)
	}
	dst = appendMembers(dst, n[4], d.PublishedAt.UTC().Format(deadLetterTime))
	if !d.LastAttemptAt.IsZero() {
		dst = appendMembers(dst, n[5], d.LastAttemptAt.UTC().Format(deadLetterTime))
	}
	return dst
}
