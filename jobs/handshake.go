package jobs

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"postrider/catalog"
	"postrider/event"
	"postrider/jobs/endpoint"
	"postrider/policy"
	"postrider/policy/filter"
)

// DefaultWebhookOrigin is the name that receivers of Event Grid's CloudEvents know, such as Azure Functions, which
// answer with nothing else.
const DefaultWebhookOrigin = "eventgrid.azure.net"

// awaitInterval is how late a handshake may end whose validationUrl was not opened.
const awaitInterval = 5 * time.Second

// shake makes one request and writes down what it came to.
func (e *Engine) shake(ctx context.Context, h *catalog.Handshake, job int64) error {
	ask := e.asking(h)
	ask.Connection = &h.Connection
	addStatic(ask.Header, h.Headers)
	met, took, token, err := e.endpoint.Ask(ask, e.options.HandshakeTimeout)
	if err != nil {
		return err
	}
	met.Conceal = concealing(h, token)
	met.Err = met.Conceal(met.Err)
	outcome, why := judge(h, met, e.options.WebhookOrigin)
	why = met.Conceal(why)
	excerpt := []byte(met.Conceal(string(met.Body)))
	r := &catalog.HandshakeResult{Job: job, Handshake: h, After: e.options.HandshakePause, Step: catalog.HandshakeStep{
		At: h.ReadAt, Sent: ask.Summary, Status: met.Status, Error: met.Err,
		Answer: excerpt[:min(len(excerpt), endpoint.MaxExcerptBytes)], Verdict: why, Duration: took,
	}}
	r.State, r.Message = standing(h, outcome, why)
	log := e.log
	if met.Cause != nil {
		log = log.With("error", withoutQueries(met.Conceal(met.Cause.Error())))
	}
	log.Info("a handshake with an endpoint", "purpose", h.Purpose, "topic", h.Topic, "subscription", h.Subscription,
		"endpoint", h.EndpointBaseURL, "try", h.Tries+1, "sent", ask.Summary, "status", met.Status, "verdict", why,
		"state", r.State)
	return e.untilRecorded(ctx, "a handshake", h.ID, func() error { return e.parts.Handshakes.Record(ctx, r) })
}

// standing is the handshake's state after an answer.
func standing(
	h *catalog.Handshake, outcome policy.HandshakeOutcome, why string,
) (state catalog.HandshakeState, message string) {
	switch {
	case outcome == policy.HandshakeAccepted:
		return catalog.HandshakeSucceeded, why
	case outcome == policy.HandshakeAwaits:
		return catalog.HandshakeAwaiting,
			fmt.Sprintf("the endpoint %s: open validationUrl within %d minutes, or set endpointValidation to skip",
				why, int(catalog.CallbackLifetime.Minutes()))
	case h.Tries+1 < policy.HandshakeTries:
		return catalog.HandshakePending, fmt.Sprintf("try %d of %d: %s", h.Tries+1, policy.HandshakeTries, why)
	}
	return catalog.HandshakeFailed, fmt.Sprintf("try %d of %d: %s", h.Tries+1, policy.HandshakeTries, why)
}

func judge(
	h *catalog.Handshake, met policy.HandshakeResponse, origin string,
) (outcome policy.HandshakeOutcome, why string) {
	switch {
	case h.Purpose == catalog.PurposeDeletion:
		return policy.HandshakeAcknowledged(met)
	case h.Schema == event.CloudEvents:
		return policy.HandshakeByOrigin(met, origin, h.Callback)
	}
	return policy.HandshakeByCode(met, h.Code)
}

func (e *Engine) asking(h *catalog.Handshake) endpoint.HandshakeRequest {
	if h.Purpose == catalog.PurposeValidation && h.Schema == event.CloudEvents {
		return e.askingPermission(h)
	}
	self := event.SystemEvent{ID: uuid.NewString(), Topic: h.Topic, Subscription: h.Subscription, Time: h.ReadAt}
	a := endpoint.HandshakeRequest{Method: http.MethodPost, URL: h.EndpointURL, Header: systemHeader(h)}
	if h.Purpose == catalog.PurposeDeletion {
		a.Header.Set("Aeg-Event-Type", "SubscriptionDeletion")
		a.Body, a.Summary = event.DeletedBody(self, h.Schema), "POST of a deletion event"
		return a
	}
	a.Header.Set("Aeg-Event-Type", "SubscriptionValidation")
	a.Body, a.Summary = event.ValidationBody(self, h.Code, h.ValidationURL()), "POST of a validation event"
	return a
}

// addStatic adds the Static headers that deliveries carry. They replace none of ours.
func addStatic(header http.Header, list []policy.DeliveryAttribute) {
	policy.NewHeaderSet(list).Each(&filter.EventView{}, 0, func(name, value string) {
		if header.Get(name) == "" {
			header.Set(name, value)
		}
	})
}

// systemHeader is a delivery's, as far as it makes sense.
func systemHeader(h *catalog.Handshake) http.Header {
	header := http.Header{}
	header.Set("Content-Type", event.ContentType(h.Schema, false))
	header.Set("Aeg-Subscription-Name", strings.ToUpper(h.Subscription))
	header.Set("Aeg-Delivery-Count", strconv.Itoa(h.Tries))
	header.Set("Aeg-Metadata-Version", event.MetadataVersion(h.Schema))
	if h.Schema != event.CloudEvents {
		header.Set("Aeg-Data-Version", "1")
	}
	return header
}

// askingPermission writes the headers' names as their specification does: HTTP/1.1 sends them so.
func (e *Engine) askingPermission(h *catalog.Handshake) endpoint.HandshakeRequest {
	a := endpoint.HandshakeRequest{
		Method: http.MethodOptions, URL: h.EndpointURL,
		Header: http.Header{"WebHook-Request-Origin": {e.options.WebhookOrigin}},
	}
	a.Summary = "OPTIONS with WebHook-Request-Origin: " + e.options.WebhookOrigin
	if h.Callback {
		a.Header["WebHook-Request-Callback"] = []string{h.ValidationURL()}
		a.Summary += " and WebHook-Request-Callback"
	}
	if rate := e.options.WebhookRequestRate; rate > 0 {
		a.Header["WebHook-Request-Rate"] = []string{strconv.Itoa(rate)}
		a.Summary += fmt.Sprintf(" and WebHook-Request-Rate: %d", rate)
	}
	return a
}

// concealing takes out of what is kept of an answer what it repeats of secrets (of the endpoint's URL and its headers,
// as is done with deliveries) and the code, in whatever case: who reads the views must not find one that is still good.
func concealing(h *catalog.Handshake, token string) func(string) string {
	secrets := policy.NewSecrets(h.Headers, h.EndpointURL).With(token)
	if h.Code == "" {
		return secrets.Redact
	}
	code := regexp.MustCompile("(?i)" + regexp.QuoteMeta(h.Code))
	return func(text string) string { return secrets.Redact(code.ReplaceAllLiteralString(text, "(code)")) }
}
