package server

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/jobs/publish"
	"postrider/server/api"
	"postrider/server/auth"
	v1 "postrider/server/v1"
)

const (
	// relayedInterval is how often the requests of relay feeds are recorded.
	relayedInterval = 10 * time.Second
	// maxRelayed limits the feeds of one interval by source, and the others: publishers choose their names.
	maxRelayed = 1000
	// maxFeedName limits the name of a feed. Event Grid's names have 64 characters at most.
	maxFeedName = 256
	// maxFeedText limits the other texts of a handshake, as the texts of events are limited.
	maxFeedText = 1024
)

// relayHandshakeError is a request to a relay topic that brings no events: a handshake, or the deletion of an event
// subscription. It is the error of parsing them.
type relayHandshakeError struct {
	topic *catalog.Topic
	// source is the topic in Azure.
	source string
	// code is the validation code; "" for a deletion.
	code string
}

// Error is not shown: postrider responds with 200.
func (*relayHandshakeError) Error() string { return "a request without events" }

// relayEvents parses the events of a request to a relay topic. *relayHandshakeError: it has none.
func (s *Server) relayEvents(t *catalog.Topic, r *http.Request, body []byte) ([]event.Event, error) {
	kind := r.Header.Get("Aeg-Event-Type")
	switch {
	case s.isOwn(r):
		return nil, errOwnRelay
	case strings.EqualFold(kind, "SubscriptionValidation"):
		return nil, readValidation(t, body)
	case strings.EqualFold(kind, "SubscriptionDeletion"):
		return nil, &relayHandshakeError{topic: t, source: sourceOf(body)}
	}
	return v1.InputOf(t).ParseRequest(r.Header, body)
}

// errOwnRelay is the response to a request of this database. 400 is not retried: each such delivery is a dead letter.
var errOwnRelay = api.Reject(http.StatusBadRequest, api.CodeInvalidRequest,
	"this event subscription belongs to the same postrider: a relay topic does not accept its deliveries; publish to "+
		"the topic, or subscribe another endpoint")

// isOwn reports whether a request comes from a node of this database.
func (s *Server) isOwn(r *http.Request) bool {
	origin := r.Header.Get(endpointconf.OriginHeader)
	return origin != "" && origin == s.parts.Cache.Snapshot().ServerID
}

// readValidation reads a validation event: an array of exactly one. Source: Microsoft, Endpoint validation with Event
// Grid event schema, 2024-09-25. It is in the Event Grid schema for custom events, too.
func readValidation(t *catalog.Topic, body []byte) error {
	if t.InputSchema == event.CloudEvents {
		return api.Reject(http.StatusBadRequest, api.CodeInvalidRequest, "topic %q takes CloudEvents: create the event "+
			"subscription in Azure with --event-delivery-schema cloudeventschemav1_0", t.Name)
	}
	var events []struct {
		Topic string `json:"topic"`
		Data  struct {
			ValidationCode string `json:"validationCode"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &events) != nil || len(events) != 1 || events[0].Data.ValidationCode == "" ||
		len(events[0].Data.ValidationCode) > maxFeedText {
		return api.Reject(http.StatusBadRequest, event.CodeInvalidEvent,
			"a validation request must be an array of one event with data.validationCode")
	}
	return &relayHandshakeError{topic: t, source: feedText(events[0].Topic), code: events[0].Data.ValidationCode}
}

// sourceOf is the topic that a deletion event names; "" if it names none, as a CloudEvent.
func sourceOf(body []byte) string {
	var events []struct {
		Topic string `json:"topic"`
	}
	if json.Unmarshal(body, &events) != nil || len(events) == 0 {
		return ""
	}
	return feedText(events[0].Topic)
}

// feedText is a text of another service, or "" if it cannot be stored.
func feedText(text string) string {
	if len(text) > maxFeedText || !api.Storable(text) {
		return ""
	}
	return text
}

// feedName is the event subscription that a request names; "" if it names none.
func feedName(r *http.Request) string {
	name := r.Header.Get("Aeg-Subscription-Name")
	if len(name) > maxFeedName || !api.Storable(name) {
		return ""
	}
	return name
}

// respondRelay records a handshake and responds. Azure accepts no other status than 200, and validationResponse in this
// letter case only.
func (s *Server) respondRelay(c echo.Context, h *relayHandshakeError) error {
	r := c.Request()
	if h.code == "" {
		if err := s.parts.Relays.End(r.Context(), h.topic.ID, feedName(r), h.source); err != nil {
			return err
		}
		return c.NoContent(http.StatusOK)
	}
	err := s.noteHandshake(r, &catalog.RelayHandshake{
		TopicID: h.topic.ID, Subscription: feedName(r), Source: h.source, Schema: event.EventGrid,
	})
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]string{"validationResponse": h.code})
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderContentLength, strconv.Itoa(len(body)))
	return c.JSONBlob(http.StatusOK, body)
}

// noteHandshake records a handshake. A feed beyond the limit works, but is not listed.
func (s *Server) noteHandshake(r *http.Request, h *catalog.RelayHandshake) error {
	noted, err := s.parts.Relays.NoteHandshake(r.Context(), h)
	if err == nil && !noted {
		s.log.Warn(tooManyFeeds, "topic", r.URL.Path, "azureSubscription", h.Subscription)
	}
	return err
}

const tooManyFeeds = "a relay topic has 1,000 active feeds: others are not listed, and their requests are not counted"

// allowRelay responds to the OPTIONS of a CloudEvents handshake. Azure repeats the query of the endpoint's URL, which
// has the key. Source: CNCF, HTTP 1.1 Web Hooks for Event Delivery 1.0.1, section 4; Microsoft, Endpoint validation
// with CloudEvents schema, 2026-02-17.
func (s *Server) allowRelay(c echo.Context) error {
	return s.allowRelayTo(c, api.PathValue(c, "topic"))
}

// allowRelayTo is allowRelay for a topic.
func (s *Server) allowRelayTo(c echo.Context, topic string) error {
	r := c.Request()
	credential, err := s.credential(r, &customTopics, topic)
	if err != nil {
		return err
	}
	if err := s.auth.LookUp(r.Context(), &credential, topic); err != nil {
		return s.credentialError(r, topic, &credential, err)
	}
	t, err := s.parts.Publisher.Admit(r.Context(), topic, credential.Opens)
	if err != nil {
		return s.credentialError(r, topic, &credential, err)
	}
	s.credentialOpened(r, topic, &credential)
	origin := r.Header.Get("WebHook-Request-Origin")
	switch {
	case !t.Relays():
		return api.Reject(http.StatusMethodNotAllowed, "MethodNotAllowed",
			"topic %q is no relay: set its relay to azure", topic)
	case origin == "" || len(origin) > maxFeedText || !api.Storable(origin):
		return api.Invalid("WebHook-Request-Origin", "must be one header of 1 to %d bytes", maxFeedText)
	case t.InputSchema != event.CloudEvents:
		return api.Reject(http.StatusBadRequest, api.CodeInvalidRequest,
			"topic %q has input schema %s: create the event subscription in Azure without a CloudEvents delivery schema",
			topic, t.InputSchema)
	case s.isOwn(r):
		return errOwnRelay
	}
	h := &catalog.RelayHandshake{
		TopicID: t.ID, Subscription: feedName(r), Schema: event.CloudEvents, Origin: origin,
		Callback: s.callbackOf(r),
	}
	if h.Callback != nil {
		h.Subscription = cmp.Or(h.Subscription, subscriptionIn(h.Callback))
	}
	if err := s.noteHandshake(r, h); err != nil {
		return err
	}
	header, rate := c.Response().Header(), "*"
	if s.options.RequestsPerSecond > 0 {
		rate = strconv.Itoa(s.options.RequestsPerSecond * 60) // a minute
	}
	header.Set("WebHook-Allowed-Origin", origin)
	header.Set("WebHook-Allowed-Rate", rate)
	header.Set(echo.HeaderAllow, http.MethodPost)
	return c.NoContent(http.StatusOK)
}

// callbackOf is the callback that a handshake offers; nil without one, and for a URL that must not be called.
func (s *Server) callbackOf(r *http.Request) *url.URL {
	text := r.Header.Get("WebHook-Request-Callback")
	if text == "" {
		return nil
	}
	u, err := endpointconf.EndpointURL(text, s.options.AllowCIDR)
	if err == nil && !s.options.AllowHTTP {
		err = endpointconf.PlainEndpoint(u, s.options.AllowCIDR)
	}
	if err != nil {
		s.log.Warn("the callback of a handshake with a relay topic must not be called", "topic", r.URL.Path, "error", err)
		return nil
	}
	return u
}

// subscriptionIn is the event subscription that Azure's callback names: .../eventsubscriptions/NAME/validate.
func subscriptionIn(callback *url.URL) string {
	parts := strings.Split(callback.Path, "/")
	at := slices.IndexFunc(parts, func(part string) bool { return strings.EqualFold(part, "eventsubscriptions") })
	if at < 0 || at+1 >= len(parts) || len(parts[at+1]) > maxFeedName || !api.Storable(parts[at+1]) {
		return ""
	}
	return parts[at+1]
}

// bodyLimit is the most bytes that a publish to a topic may have. A relay topic takes more; another node may have made
// it one a moment ago.
func (s *Server) bodyLimit(r *http.Request, topic string) (int, error) {
	relays := func() bool {
		t, ok := s.parts.Cache.Snapshot().Topic(topic)
		return ok && t.Relays()
	}
	if r.ContentLength > api.MaxBodyBytes && r.ContentLength <= event.MaxRelayedBytes && !relays() {
		if err := s.parts.Cache.Confirm(r.Context()); err != nil {
			return 0, api.Reject(http.StatusServiceUnavailable, api.CodeUnavailable, "database unavailable; retry later")
		}
	}
	if relays() {
		return event.MaxRelayedBytes, nil
	}
	return api.MaxBodyBytes, nil
}

// relayed counts the requests of relay feeds of the current interval.
type relayed struct {
	full  sync.Once // logs that a topic has too many feeds
	mu    sync.Mutex
	feeds map[feedKey]*catalog.Relayed
}

type feedKey struct {
	topic        int64
	name, source string
}

// add changes the counts of a feed. Requests without a name are not Azure's.
func (l *relayed) add(t *catalog.Topic, name, source string, change func(*catalog.Relayed)) {
	if name == "" {
		return
	}
	key := feedKey{t.ID, strings.ToUpper(name), source}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.feeds[key] == nil && len(l.feeds) >= maxRelayed {
		key.source, source = "", "" // then its requests are those of its name
	}
	found := l.feeds[key]
	if found == nil {
		if len(l.feeds) >= 2*maxRelayed {
			return
		}
		found = &catalog.Relayed{TopicID: t.ID, Subscription: name, Source: source}
		l.feeds[key] = found
	}
	found.Last = time.Now()
	change(found)
}

func (l *relayed) take() map[feedKey]*catalog.Relayed {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.feeds
	l.feeds = map[feedKey]*catalog.Relayed{}
	return taken
}

// putBack adds counts that could not be recorded to those of the current interval.
func (l *relayed) putBack(taken map[feedKey]*catalog.Relayed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, before := range taken {
		now := l.feeds[key]
		if now == nil {
			l.feeds[key] = before
			continue
		}
		now.Requests, now.Rejected = now.Requests+before.Requests, now.Rejected+before.Rejected
		now.Looped, now.Events = now.Looped+before.Looped, now.Events+before.Events
		now.Duplicates += before.Duplicates
		now.DeliveryCount = cmp.Or(now.DeliveryCount, before.DeliveryCount)
	}
}

// countRelayed counts a delivery of a feed that was stored.
func (s *Server) countRelayed(r *http.Request, receipt *publish.Receipt) {
	if !receipt.Topic.Relays() || feedName(r) == "" {
		return
	}
	source := ""
	if len(receipt.Events) > 0 && receipt.Events[0].Schema != event.CloudEvents {
		source = receipt.Events[0].Source
	}
	s.relayed.add(receipt.Topic, feedName(r), source, func(f *catalog.Relayed) {
		f.Requests++
		for i := range receipt.Events {
			if receipt.Repeated || receipt.Duplicates != nil && receipt.Duplicates[i] {
				f.Duplicates++
			} else {
				f.Events++
			}
		}
		if n, err := strconv.ParseInt(r.Header.Get("Aeg-Delivery-Count"), 10, 32); err == nil {
			f.DeliveryCount = new(int(n))
		}
	})
}

// neverRepeated are the statuses of rejected content after which Azure does not send it again. Source: Microsoft, Azure
// Event Grid message delivery and retry, 2026-02-09. 401 and 403 count nothing: the sender may be anyone.
var neverRepeated = []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge}

// countRejected counts a delivery of a feed that was rejected for its content, which Azure does not repeat, and a
// delivery of postrider itself. A rejection is logged with the first of each interval.
func (s *Server) countRejected(c echo.Context, topic string, credential *auth.Credential, err error) {
	r := c.Request()
	t, ok := s.parts.Cache.Snapshot().Topic(topic)
	if !ok || !t.Relays() || feedName(r) == "" {
		return
	}
	response := api.ResponseTo(err, c)
	if response == nil || !slices.Contains(neverRepeated, response.Status) {
		return
	}
	// The request may have been rejected before its credential was checked.
	if s.auth.LookUp(r.Context(), credential, topic) != nil || !credential.Opens(t) {
		return
	}
	if s.isOwn(r) {
		s.relayed.add(t, feedName(r), "", func(f *catalog.Relayed) { f.Looped++ })
		return
	}
	s.relayed.add(t, feedName(r), "", func(f *catalog.Relayed) {
		if f.Rejected++; f.Rejected == 1 {
			s.log.Warn("a delivery into a relay topic was rejected; Azure does not repeat it", "topic", t.Name,
				"azureSubscription", f.Subscription, "status", response.Status, "error", err)
		}
	})
}

func (s *Server) writeRelayed(ctx context.Context) {
	taken := s.relayed.take()
	if len(taken) == 0 {
		return
	}
	list := slices.Collect(maps.Values(taken))
	for _, f := range list {
		if f.Looped > 0 {
			s.log.Warn("a relay topic rejected deliveries of postrider itself: they are dead letters",
				"subscription", f.Subscription, "requests", f.Looped)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, rejectionsTimeout)
	defer cancel()
	skipped, err := s.parts.Relays.Count(ctx, list)
	if err != nil {
		s.relayed.putBack(taken)
		s.log.Warn("the requests of relay feeds could not be recorded, trying again", "error", err)
	}
	if skipped > 0 {
		s.relayed.full.Do(func() { s.log.Warn(tooManyFeeds) })
	}
}
