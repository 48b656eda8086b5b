package server

import (
	"errors"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/jobs/publish"
	"postrider/server/api"
	"postrider/server/auth"
	v1 "postrider/server/v1"
)

// protocol is Event Grid's publish protocol for one kind of topic.
type protocol struct {
	kind catalog.TopicKind
	// versions are the valid values of api-version.
	versions []string
	// cloudEventsOnly rejects other media types than those of CloudEvents.
	cloudEventsOnly bool
}

var (
	// Source: Microsoft, Azure REST API, Event Grid data plane, 2018-01-01.
	customTopics = protocol{kind: catalog.TopicBasic, versions: []string{"2018-01-01"}}
	// Source: Microsoft, Azure REST API, Event Grid data plane, 2023-11-01 and 2024-06-01.
	namespaceTopics = protocol{
		kind: catalog.TopicNamespace, versions: []string{"2023-11-01", "2024-06-01"}, cloudEventsOnly: true,
	}
)

// publish stores the events of a request, all or none, and responds 200 with an empty body after the commit.
// Microsoft's SDKs treat other statuses, 202 included, as failures.
func (s *Server) publish(c echo.Context) error {
	return s.publishTo(c, api.PathValue(c, "topic"))
}

// publishTo is publish for a topic.
func (s *Server) publishTo(c echo.Context, topic string) error {
	err := s.publishBy(&customTopics, c, topic)
	if handshake, ok := errors.AsType[*relayHandshakeError](err); ok {
		return s.respondRelay(c, handshake)
	}
	if err != nil {
		return err
	}
	return c.NoContent(http.StatusOK)
}

// publishToNamespace is publish for namespace topics.
func (s *Server) publishToNamespace(c echo.Context) error {
	if err := s.publishBy(&namespaceTopics, c, api.PathValue(c, "topic")); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, struct{}{})
}

// headerRequestID has the id of a publish request. Log lines about the request contain it.
const headerRequestID = "X-Ms-Request-Id"

func (s *Server) publishBy(p *protocol, c echo.Context, topic string) error {
	// Every response has these headers. Source: the recorded sessions of Microsoft's clients, 2020 to 2023.
	c.Response().Header().Set("Api-Supported-Versions", strings.Join(p.versions, ", "))
	c.Response().Header().Set(headerRequestID, uuid.NewString())
	credential, err := s.credential(c.Request(), p, topic)
	if err == nil {
		err = s.publishWith(&credential, p, c, topic)
	}
	if err != nil {
		s.countRejected(c, topic, &credential, err)
	}
	return err
}

func (s *Server) publishWith(credential *auth.Credential, p *protocol, c echo.Context, topic string) error {
	r, began := c.Request(), time.Now()
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return err
	}
	if err := s.auth.LookUp(r.Context(), credential, topic); err != nil {
		return s.credentialError(r, topic, credential, err)
	}
	limit, err := s.bodyLimit(r, topic)
	if err != nil {
		return err
	}
	size, err := api.BodySize(r, limit)
	if err != nil {
		return err
	}
	reserve := func(size int) (*publish.Reservation, error) {
		return s.parts.Publisher.Reserve(r.Context(), topic, credential.Opens, int64(size))
	}
	var memory *publish.Reservation
	if size > publish.SmallBody {
		// A large body is read after memory was reserved for it. A slow publisher keeps the memory until readTimeout: it
		// delays other large bodies, and no small ones.
		if memory, err = reserve(size); err != nil {
			api.DiscardBody(r, limit)
			return s.credentialError(r, topic, credential, err)
		}
		defer memory.Release()
	}
	body, err := api.ReadBody(r, limit)
	if err != nil {
		return err
	}
	// The events share the body's memory.
	defer api.Free(body)
	if memory != nil {
		memory.Shrink(int64(body.Len()))
	} else {
		if memory, err = reserve(body.Len()); err != nil {
			return s.credentialError(r, topic, credential, err)
		}
		defer memory.Release()
	}
	receipt, err := s.publishBetweenResets(r.Context(), publish.Publication{
		Topic:          topic,
		Authorize:      credential.Opens,
		IdempotencyKey: key,
		Memory:         api.Unpooled(body),
		Parse: func(t *catalog.Topic) ([]event.Event, error) {
			s.credentialOpened(r, topic, credential)
			if err := p.check(t, r.Header); err != nil {
				return nil, err
			}
			if t.Relays() {
				return s.relayEvents(t, r, body.Bytes())
			}
			return v1.InputOf(t).ParseRequest(r.Header, body.Bytes())
		},
	})
	if err != nil {
		return s.credentialError(r, topic, credential, err)
	}
	s.countRelayed(r, receipt)
	took := time.Since(began)
	s.options.Counters.published.Observe(int64(took))
	for i, matched := range receipt.Matched {
		if matched == 0 && !receipt.Repeated && (receipt.Duplicates == nil || !receipt.Duplicates[i]) {
			s.options.Counters.mu.Lock()
			s.options.Counters.unmatched[topic]++
			s.options.Counters.mu.Unlock()
		}
	}
	if s.options.OnPublish != nil && !receipt.Repeated {
		s.options.OnPublish(reportOf(topic, receipt, took))
	}
	return nil
}

// credential reads the credential of a request by a publisher or a consumer, unless its address has sent too many wrong
// ones.
func (s *Server) credential(r *http.Request, p *protocol, topic string) (auth.Credential, error) {
	credential, err := s.auth.Credential(r)
	if err != nil {
		return credential, err
	}
	if err := p.checkVersion(r.URL); err != nil {
		return credential, err
	}
	wait := s.auth.Guesses.Wait(auth.Sender(r.RemoteAddr), topic, credential.Digest, time.Now())
	if wait > 0 && !credential.Person {
		return credential, api.TooManyGuesses(wait, "from your address")
	}
	return credential, nil
}

// credentialOpened notes a valid credential.
func (s *Server) credentialOpened(r *http.Request, topic string, c *auth.Credential) {
	if !c.Person {
		s.auth.Guesses.Opened(auth.Sender(r.RemoteAddr), topic, c.Digest)
	}
}

// reportOf omits duplicates.
func reportOf(topic string, r *publish.Receipt, took time.Duration) PublishReport {
	report := PublishReport{Topic: topic, Events: r.Events, Matched: r.Matched, Took: took, Commit: r.Commit}
	if r.Duplicates == nil {
		return report
	}
	report.Events, report.Matched = nil, nil
	for i, duplicate := range r.Duplicates {
		if !duplicate {
			report.Events, report.Matched = append(report.Events, r.Events[i]), append(report.Matched, r.Matched[i])
		}
	}
	return report
}

// idempotencyKey reads the header of the IETF's draft (draft-ietf-httpapi-idempotency-key-header-07, 2025-10-15). The
// quotes that the draft requires are part of the key.
func idempotencyKey(header http.Header) (string, error) {
	given := header.Values("Idempotency-Key")
	if len(given) == 0 {
		return "", nil
	}
	if len(given) > 1 || given[0] == "" || len(given[0]) > publish.MaxIdempotencyKey {
		return "", api.Invalid("Idempotency-Key", "must be one header of 1 to %d bytes", publish.MaxIdempotencyKey)
	}
	return given[0], nil
}

// check rejects topics of another kind, and media types that this kind does not accept.
func (p *protocol) check(t *catalog.Topic, header http.Header) error {
	switch {
	case t.Name == catalog.SystemTopic:
		return api.Reject(http.StatusBadRequest, api.CodeInvalidRequest,
			"topic %q belongs to postrider: subscribe to it, but do not publish to it", t.Name)
	case t.Kind != p.kind:
		return api.Reject(http.StatusBadRequest, api.CodeInvalidRequest, "topic %q is of kind %s: publish to %s", t.Name,
			t.Kind, v1.EndpointOf(t))
	case !p.cloudEventsOnly || event.IsBinary(header):
		return nil
	}
	media, _, _ := mime.ParseMediaType(header.Get(echo.HeaderContentType))
	if media == "application/cloudevents+json" || media == "application/cloudevents-batch+json" {
		return nil
	}
	return api.Reject(http.StatusUnsupportedMediaType, api.CodeUnsupportedMediaType,
		"a namespace topic accepts application/cloudevents+json and application/cloudevents-batch+json, and other types "+
			"only with the attributes in ce- headers")
}

func (p *protocol) checkVersion(u *url.URL) error {
	if u.RawQuery == "" {
		return nil
	}
	if v, given := foldedQuery(u)["api-version"]; given && !slices.Contains(p.versions, v[0]) {
		return api.Invalid("api-version", "must be %s, or absent, not %q", strings.Join(p.versions, " or "),
			api.Shorten(v[0]))
	}
	return nil
}

// credentialError is the response to an error of a publisher's or a consumer's request.
func (s *Server) credentialError(r *http.Request, topic string, c *auth.Credential, err error) error {
	if errors.Is(err, publish.ErrUnauthorized) {
		return s.auth.WrongCredential(auth.Sender(r.RemoteAddr), topic, "for this topic", c.Rejection())
	}
	if errors.Is(err, postgres.ErrNotFound) {
		return api.TopicNotFound(topic)
	}
	return err
}

// validatedText is the response to an opened validationUrl. Event Grid's text is not documented.
const validatedText = "Webhook successfully validated as a subscription endpoint."

// openValidationURL responds to GET and POST /topics/{topic}/eventsubscriptions/{subscription}/validate. The code is a
// credential: wrong codes count with the wrong credentials of publishers.
func (s *Server) openValidationURL(c echo.Context) error {
	topic, name, code := api.PathValue(c, "topic"), api.PathValue(c, "subscription"), c.QueryParam("id")
	if code == "" {
		return api.Invalid("id", "is required: it is the code of the handshake")
	}
	if !api.Storable(topic) || !api.Storable(name) || !api.Storable(code) {
		return noValidation()
	}
	from := auth.Sender(c.Request().RemoteAddr)
	if wait := s.auth.Guesses.Wait(from, topic, auth.DigestOf(code), time.Now()); wait > 0 {
		return api.TooManyGuesses(wait, "from your address")
	}
	auth.ActAs(c, access.Actor{Name: auth.ValidatorName, Address: c.RealIP()})
	switch err := s.parts.Handshakes.CompleteValidation(c.Request().Context(), topic, name, code); {
	case errors.Is(err, postgres.ErrNotFound):
		if wait := s.auth.Guesses.Wrong(from, topic, time.Now()); wait > 0 {
			return api.TooManyGuesses(wait, "for this topic")
		}
		return noValidation()
	case errors.Is(err, catalog.ErrValidationExpired):
		return api.Reject(http.StatusBadRequest, v1.CodeValidationOver,
			"this validation has failed or expired; start another one with "+
				"POST /v1/topics/{topic}/subscriptions/{subscription}/validate")
	case err != nil:
		return err
	}
	return c.String(http.StatusOK, validatedText)
}

func noValidation() error {
	return api.NotFound("no validation handshake of this event subscription has this code")
}
