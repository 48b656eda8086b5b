package jobs

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/destination"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/message"
	"postrider/internal/postgres"
	"postrider/jobs/delivery"
	"postrider/jobs/queue"
	"postrider/policy"
)

// content is what a request carries.
type content struct {
	body        []byte
	contentType string
	// form is that of a service; nil = of a webhook or a broker.
	form destination.Form
	// own: the body is the form's own, without the headers of deliveries.
	own bool
	// message is sent to a broker; nil = a request is sent.
	message *destination.Message
}

// tooLarge reports whether the destination would reject the body for its size, and how large it may be.
func (c *content) tooLarge() (most int, too bool) {
	if c.form == nil {
		return 0, false
	}
	most = c.form.MaxBytes()
	return most, most > 0 && len(c.body) > most
}

// content writes the members' events in their order. Of a batch that is too large for the destination it keeps a part.
// A nil body: none is left.
func (a *attempt) content() (content, error) {
	written, err := a.writable()
	for err == nil && len(a.work.Members) > 1 {
		most, too := written.tooLarge()
		if !too {
			break
		}
		left, err := a.separateLarge(len(written.body), most)
		if err != nil || !left {
			return content{}, err
		}
		if written, err = a.write(); err != nil {
			return content{}, err
		}
	}
	return written, err
}

// writable writes the events. One that cannot be written leaves its batch and is attempted alone: it would block the
// others for ever.
func (a *attempt) writable() (content, error) {
	written, err := a.write()
	if err == nil || a.work.BatchID == 0 {
		return written, err
	}
	left, err := a.separate(delivery.ReasonUnsendable, func(m *queue.Member) bool {
		_, err := event.AppendDelivery(nil, &m.Event, a.sub.Topic, a.sub.EventDeliverySchema)
		return err == nil
	})
	if err != nil || !left {
		return content{}, err
	}
	return a.write()
}

func (a *attempt) write() (content, error) {
	written, err := a.form()
	if err != nil {
		return content{}, fmt.Errorf("write the body of delivery %d, batch %d: %w", a.work.Members[0].DeliveryID,
			a.work.BatchID, err)
	}
	return written, nil
}

// form writes the events in the form that the event subscription's settings name: its delivery schema, a message of a
// chat service, or the form of its destination. Each form is a function of the settings and the events.
func (a *attempt) form() (content, error) {
	if a.sub.MessageFormat.IsMessage() {
		settings := message.Settings{
			Format: a.sub.MessageFormat, RoutingKey: a.sub.PagerDutyRoutingKey, BaseURL: a.options.PublicURL,
		}
		body, err := message.Write(a.work.Members[0].Event.Body, settings)
		return content{body: body, contentType: message.ContentType}, err
	}
	written := content{form: a.sub.Form}
	if kind := a.sub.Destination.Type(); kind != destination.WebHook && kind != destination.HybridConnection {
		messages, err := a.messages()
		if err != nil {
			return content{}, err
		}
		if a.sub.Destination.Type().IsBroker() {
			return content{body: messages[0].Body, message: &messages[0]}, nil
		}
		written.body, written.contentType = a.sub.Form.Write(messages)
		written.own = true
		return written, nil
	}
	var err error
	written.body, err = event.Body(nil, a.work.Events(), a.sub.Topic, a.sub.EventDeliverySchema, a.batched())
	written.contentType = event.ContentType(a.sub.EventDeliverySchema, a.batched())
	return written, err
}

// separateForm keeps the first member of a batch that was cut before the event subscription had a message format or
// another destination: their requests have one event.
func (a *attempt) separateForm() (left bool, err error) {
	if len(a.work.Members) == 1 || !a.sub.MessageFormat.IsMessage() && a.sub.Destination.Type().Batches() {
		return true, nil
	}
	first := a.work.Members[0].DeliveryID
	return a.separate(delivery.ReasonUnsendable, func(m *queue.Member) bool { return m.DeliveryID == first })
}

// batched reports whether the request has the format of batches: a single delivery has it if batches are on, and a
// batch that was cut earlier still has it if they are off.
func (a *attempt) batched() bool { return a.sub.Batching() || len(a.work.Members) > 1 }

// separateHeaders keeps the members that have the first one's values of dynamic headers: the headers may have changed
// after the batch was cut.
func (a *attempt) separateHeaders() (left bool, err error) {
	if len(a.work.Members) == 1 || !a.sub.BatchHeaders.HasDynamic() {
		return true, nil
	}
	values := func(m *queue.Member) string {
		view := catalog.EventView(a.sub.Topic, &m.Event)
		return a.sub.BatchHeaders.DynamicValues(&view, a.options.MaxHeaderBytes)
	}
	first := values(&a.work.Members[0])
	return a.separate(delivery.ReasonHeaderValue, func(m *queue.Member) bool { return values(m) == first })
}

// separate removes members from the batch before its request. Each is attempted alone. It reports whether any is left,
// and otherwise ends the batch.
func (a *attempt) separate(reason policy.Reason, stays func(*queue.Member) bool) (left bool, err error) {
	gone := a.work.Keep(stays)
	if len(gone) == 0 {
		return true, nil
	}
	alone := policy.Verdict{Action: policy.Retry, At: a.work.Now(), Reason: reason}
	fates := postgres.Column(gone, func(m queue.Member) delivery.Fate {
		return delivery.Fate{DeliveryID: m.DeliveryID, Verdict: alone}
	})
	err = a.record(policy.Verdict{Action: delivery.Leave}, fates)
	if left = len(a.work.Members) > 0; err != nil || left {
		return left, err
	}
	return false, a.record(policy.Verdict{Action: delivery.Cancel}, nil)
}

// header returns the headers of Event Grid's deliveries, see docs/guides/receive.md. Members of a batch have the same
// values of dynamic headers. The system id and the data version are sent only with a single event.
//
// Signed requests have the headers of Standard Webhooks. The id must not change from attempt to attempt, because
// receivers recognize a message by it. The content is what is sent, byte for byte.
//
// Source: Standard Webhooks, specification 1.0.0, webhook headers.
func (a *attempt) header(at time.Time, sent content) http.Header {
	h := make(http.Header, 10)
	if sent.own {
		h.Set("Content-Type", sent.contentType)
		return h
	}
	first := &a.work.Members[0]
	if a.sub.Headers != nil {
		view := catalog.EventView(a.sub.Topic, &first.Event)
		a.sub.Headers.Each(&view, a.options.MaxHeaderBytes, h.Set) // first: none replaces a following header
	}
	h.Set("Content-Type", sent.contentType)
	h.Set("Aeg-Event-Type", "Notification")
	h.Set(endpointconf.OriginHeader, a.cache.Snapshot().ServerID)
	h.Set("Aeg-Subscription-Name", strings.ToUpper(a.sub.Name))
	h.Set("Aeg-Delivery-Count", strconv.Itoa(a.work.Attempts)) // attempts made before this one
	h.Set("Aeg-Metadata-Version", event.MetadataVersion(a.sub.EventDeliverySchema))
	if len(a.work.Members) == 1 {
		h.Set("Aeg-Output-Event-Id", first.SystemID.String())
		if a.sub.EventDeliverySchema != event.CloudEvents {
			if sendable(first.Event.DataVersion) {
				h.Set("Aeg-Data-Version", first.Event.DataVersion)
			}
		}
	}
	if a.trace.Parent != "" { // the trace of the publish
		h.Set("Traceparent", a.trace.Parent)
		if a.trace.State != "" {
			h.Set("Tracestate", a.trace.State)
		}
	}
	if a.sub.SigningKeys != nil {
		id := a.work.MessageID()
		h.Set("Webhook-Id", id)
		h.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
		h.Set("Webhook-Signature", a.sub.SigningKeys.Sign(id, at, sent.body))
	}
	return h
}

// sendable reports whether a header can carry the text: without control characters (RFC 9110, 5.5). net/http would
// reject each request with them.
func sendable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
