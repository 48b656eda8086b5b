package jobs

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/filter"
	"postrider/jobs/endpoint"
)

// defaultWebhookOrigin is the origin that receivers of Event Grid's CloudEvents allow, such as Azure Functions.
const defaultWebhookOrigin = "eventgrid.azure.net"

// handshaker makes the requests of handshakes.
type handshaker struct {
	*runs
	cache      *catalog.Cache
	handshakes *catalog.Handshakes
	endpoint   *endpoint.Client
	options    *Options
}

// handshake makes one request of a handshake and records its result. An endpoint that does not respond is a result and
// no error.
func (s *handshaker) handshake(ctx context.Context, job *river.Job[ownedArgs]) error {
	h, err := s.handshakes.Load(ctx, job.Args.Handshake, job.ID)
	if err != nil {
		return s.notLoaded(job, "a handshake", err)
	}
	request := s.request(h)
	request.Connection = &h.Connection
	request.Header.Set(endpointconf.OriginHeader, s.cache.Snapshot().ServerID)
	// The static headers of deliveries replace no other headers.
	endpointconf.NewHeaderSet(h.Headers).Each(&filter.EventView{}, 0, func(name, value string) {
		if request.Header.Get(name) == "" {
			request.Header.Set(name, value)
		}
	})
	resp, took, token, err := s.endpoint.SendHandshake(request, s.options.HandshakeTimeout)
	if err != nil {
		return err
	}
	resp.Conceal = concealing(h, token)
	resp.Err = resp.Conceal(resp.Err)
	outcome, why := handshakeOutcome(h, resp, s.options.WebhookOrigin)
	why = resp.Conceal(why)
	excerpt := []byte(resp.Conceal(string(resp.Body)))
	r := &catalog.HandshakeResult{Job: job.ID, Handshake: h, After: s.options.HandshakePause, Step: catalog.HandshakeStep{
		At: h.ReadAt, Sent: request.Summary, Status: resp.Status, Error: resp.Err,
		Response: excerpt[:min(len(excerpt), endpoint.MaxExcerptBytes)], Verdict: why, Duration: took,
	}}
	r.State, r.Message = handshakeState(h, outcome, why)
	log := s.log
	if resp.Cause != nil {
		log = log.With("error", withoutQueries(resp.Conceal(resp.Cause.Error())))
	}
	log.Info("a handshake with an endpoint", "purpose", h.Purpose, "topic", h.Topic, "subscription", h.Subscription,
		"endpoint", h.EndpointBaseURL, "try", h.Tries+1, "sent", request.Summary, "status", resp.Status, "verdict", why,
		"state", r.State)
	return s.untilRecorded(ctx, "a handshake", h.ID, func() error { return s.handshakes.Record(ctx, r) })
}

// handshakeState returns the handshake's state after an outcome.
func handshakeState(
	h *catalog.Handshake, outcome endpointconf.HandshakeOutcome, why string,
) (state catalog.HandshakeState, message string) {
	switch outcome {
	case endpointconf.HandshakeRejected: // below
	case endpointconf.HandshakeAccepted:
		return catalog.HandshakeSucceeded, why
	case endpointconf.HandshakeAwaits:
		return catalog.HandshakeAwaiting,
			fmt.Sprintf("the endpoint %s: open validationUrl within %d minutes, or set endpointValidation to skip",
				why, int(catalog.CallbackLifetime.Minutes()))
	}
	tries := endpointconf.HandshakeTries
	if h.Purpose == catalog.PurposeCallback { // an operator allowed one request
		tries = 1
	}
	message = fmt.Sprintf("try %d of %d: %s", h.Tries+1, tries, why)
	if h.Tries+1 < tries {
		return catalog.HandshakePending, message
	}
	return catalog.HandshakeFailed, message
}

func handshakeOutcome(
	h *catalog.Handshake, resp endpointconf.HandshakeResponse, origin string,
) (outcome endpointconf.HandshakeOutcome, why string) {
	if h.Purpose != catalog.PurposeValidation {
		return endpointconf.HandshakeAcknowledged(resp)
	}
	if h.Schema == event.CloudEvents {
		return endpointconf.HandshakeByOrigin(resp, origin, h.Callback)
	}
	return endpointconf.HandshakeByCode(resp, h.Code)
}

func (s *handshaker) request(h *catalog.Handshake) *endpoint.HandshakeRequest {
	if h.Purpose == catalog.PurposeValidation && h.Schema == event.CloudEvents {
		return s.permissionRequest(h)
	}
	if h.Purpose == catalog.PurposeCallback {
		return &endpoint.HandshakeRequest{
			Method: http.MethodGet, URL: h.EndpointURL, Header: http.Header{}, Summary: "GET of the callback",
		}
	}
	system := event.SystemEvent{ID: uuid.NewString(), Topic: h.Topic, Subscription: h.Subscription, Time: h.ReadAt}
	header := http.Header{}
	header.Set("Content-Type", event.ContentType(h.Schema, false))
	header.Set("Aeg-Subscription-Name", strings.ToUpper(h.Subscription))
	header.Set("Aeg-Delivery-Count", strconv.Itoa(h.Tries))
	header.Set("Aeg-Metadata-Version", event.MetadataVersion(h.Schema))
	if h.Schema != event.CloudEvents {
		header.Set("Aeg-Data-Version", "1")
	}
	r := &endpoint.HandshakeRequest{Method: http.MethodPost, URL: h.EndpointURL, Header: header}
	if h.Purpose == catalog.PurposeDeletion {
		r.Header.Set("Aeg-Event-Type", "SubscriptionDeletion")
		r.Body, r.Summary = event.DeletedBody(system, h.Schema), "POST of a deletion event"
		return r
	}
	r.Header.Set("Aeg-Event-Type", "SubscriptionValidation")
	r.Body, r.Summary = event.ValidationBody(system, h.Code, h.ValidationURL()), "POST of a validation event"
	return r
}

// permissionRequest requests permission for CloudEvents. The headers' names are spelled as in their specification.
func (s *handshaker) permissionRequest(h *catalog.Handshake) *endpoint.HandshakeRequest {
	r := &endpoint.HandshakeRequest{
		Method: http.MethodOptions, URL: h.EndpointURL,
		Header: http.Header{"WebHook-Request-Origin": {s.options.WebhookOrigin}},
	}
	r.Summary = "OPTIONS with WebHook-Request-Origin: " + s.options.WebhookOrigin
	if h.Callback {
		r.Header["WebHook-Request-Callback"] = []string{h.ValidationURL()}
		r.Summary += " and WebHook-Request-Callback"
	}
	if rate := s.options.WebhookRequestRate; rate > 0 {
		r.Header["WebHook-Request-Rate"] = []string{strconv.Itoa(rate)}
		r.Summary += fmt.Sprintf(" and WebHook-Request-Rate: %d", rate)
	}
	return r
}

// concealing returns a function that removes the secrets of the endpoint's URL and headers and the code, in any case,
// from text that is stored: readers of the views must not find a valid code.
func concealing(h *catalog.Handshake, token string) func(string) string {
	secrets := endpointconf.NewSecrets(h.Headers, h.EndpointURL).With(token)
	if h.Code == "" {
		return secrets.Redact
	}
	code := regexp.MustCompile("(?i)" + regexp.QuoteMeta(h.Code))
	return func(text string) string { return secrets.Redact(code.ReplaceAllLiteralString(text, "(code)")) }
}
