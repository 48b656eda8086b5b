package jobs

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/destination"
	"postrider/internal/event"
	"postrider/jobs/delivery"
	"postrider/jobs/endpoint"
	"postrider/jobs/queue"
	"postrider/policy"
)

// messages are the members' events as destinations other than webhooks receive them.
func (a *attempt) messages() ([]destination.Message, error) {
	list := make([]destination.Message, len(a.work.Members))
	for i := range a.work.Members {
		m := &a.work.Members[i]
		body, err := event.AppendDelivery(nil, &m.Event, a.sub.Topic, a.sub.EventDeliverySchema)
		if err != nil {
			return nil, err
		}
		list[i] = destination.Message{
			// A redelivery is another delivery of the same event: with the event's id alone, a broker that remembers ids
			// would drop it silently.
			ID:          fmt.Sprintf("%s-%d", m.SystemID, m.DeliveryID),
			Body:        body,
			ContentType: event.ContentType(a.sub.EventDeliverySchema, false),
			Attributes:  a.attributes(m),
		}
		if a.sub.MessageKey != nil {
			view := catalog.EventView(a.sub.Topic, &m.Event)
			a.sub.MessageKey.Each(&view, a.options.MaxHeaderBytes, func(_, value string) { list[i].Key = []byte(value) })
		}
	}
	return list, nil
}

// attributes are the properties of a message: Event Grid's, and the custom ones with the letter case of their names.
//
// Source: Microsoft, Service Bus as an event handler, 2024-01, message headers.
func (a *attempt) attributes(m *queue.Member) []destination.Attribute {
	list := []destination.Attribute{
		{Name: "aeg-event-type", Value: "Notification"},
		{Name: "aeg-subscription-name", Value: strings.ToUpper(a.sub.Name)},
		{Name: "aeg-delivery-count", Value: strconv.Itoa(a.work.Attempts)}, // attempts made before this one
		{Name: "aeg-metadata-version", Value: event.MetadataVersion(a.sub.EventDeliverySchema)},
		{Name: "aeg-output-event-id", Value: m.SystemID.String()},
	}
	if a.sub.EventDeliverySchema != event.CloudEvents && sendable(m.Event.DataVersion) {
		list = append(list, destination.Attribute{Name: "aeg-data-version", Value: m.Event.DataVersion})
	}
	if a.sub.Headers != nil {
		view := catalog.EventView(a.sub.Topic, &m.Event)
		a.sub.Headers.Each(&view, a.options.MaxHeaderBytes, func(name, value string) {
			list = append(list, destination.Attribute{Name: name, Value: value})
		})
	}
	return list
}

// separateLarge keeps as many members of a batch as one request may have. The others are attempted alone. A body grows
// in its form, so the batch was cut by other sizes.
func (a *attempt) separateLarge(size, most int) (left bool, err error) {
	keep := max(1, len(a.work.Members)*most/size*9/10) // sizes differ
	kept := map[int64]bool{}
	for _, m := range a.work.Members[:min(keep, len(a.work.Members)-1)] {
		kept[m.DeliveryID] = true
	}
	return a.separate(delivery.ReasonUnsendable, func(m *queue.Member) bool { return kept[m.DeliveryID] })
}

// tooLarge is the result of an event that its destination does not accept, without a request.
func tooLarge(size, most int) endpoint.Response {
	return endpoint.Response{
		Result: policy.Result{Status: http.StatusRequestEntityTooLarge},
		ErrorText: fmt.Sprintf("not sent: the message has %d bytes, and the destination accepts %d "+
			"(maxMessageSizeInKilobytes, or the service's own limit)", size, most),
	}
}

// attemptedAlone reports whether a service has rejected a batch for what may be the fault of one of its events. The
// policy's rule for the response would end all of them, though postrider or the event subscription chose to send them
// together: so the rule for other responses applies, and each is attempted alone.
func (a *attempt) attemptedAlone(resp endpoint.Response) bool {
	r := resp.Result
	return len(a.work.Members) > 1 && a.sub.Form != nil && a.sub.Destination.Type() != destination.HybridConnection &&
		(r.Status == http.StatusBadRequest || r.Status == http.StatusRequestEntityTooLarge || r.Err == policy.ErrorSession)
}

// allButOne adds members to those with their own fates, which leave the batch, until one is left.
func allButOne(members int, separate []int) []int {
	kept := -1
	for i := range members {
		switch {
		case slices.Contains(separate, i):
		case kept < 0:
			kept = i
		default:
			separate = append(separate, i)
		}
	}
	return separate
}

// unusable is the result of stored settings that cannot be used.
func unusable(err error) endpoint.Response {
	resp := endpoint.Response{Result: policy.Result{Err: policy.ErrorArgument}}
	resp.Failed(err)
	return resp
}

// sign makes a request one in the form of a service, just before it is sent: the signature has a time.
func sign(r *endpoint.Request, form destination.Form, header http.Header, body []byte, now time.Time) {
	with := func(second bool) (address string, h http.Header, ok bool) {
		h = header.Clone()
		address, ok = form.Authorize(h, body, now, second)
		return address, h, ok
	}
	r.URL, r.Header, _ = with(false)
	r.Translate = form.Translate
	if address, h, ok := with(true); ok {
		r.Second = func() (string, http.Header) { return address, h }
	}
}

// signatures are the credentials in a request's headers that a form has made of the keys: whole, and the signature.
func signatures(sent http.Header) (texts []string) {
	for _, name := range signatureHeaders {
		_, credentials, _ := strings.Cut(sent.Get(name), " ")
		_, signature, found := strings.Cut(credentials, "sig=")
		if signature, _, _ = strings.Cut(signature, "&"); !found {
			_, signature, _ = strings.Cut(credentials, ":") // SharedKey ACCOUNT:SIGNATURE
		}
		texts = append(texts, credentials, signature)
		if plain, err := url.QueryUnescape(signature); err == nil {
			texts = append(texts, plain)
		}
	}
	return texts
}

// closeBrokers closes the clients of brokers that no event subscription needs any more.
func (d *deliverer) closeBrokers(context.Context) error {
	snapshot := d.cache.Snapshot()
	d.endpoint.CloseBrokers(func(yield func(endpoint.Wanted) bool) {
		for sub := range snapshot.Subscriptions() {
			rules, known := snapshot.Rules(sub.ID)
			if known && sub.Destination.Type().IsBroker() && !yield(endpoint.Wanted{
				Destination: sub.Destination, Connection: &sub.Connection, AckTimeout: time.Duration(rules.Policy.AckTimeout),
			}) {
				return
			}
		}
	})
	return nil
}
