package server

import (
	"errors"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/event"
	"postrider/store"
)

// apiVersion is the one data-plane version of Event Grid's custom topics; its SDKs send it with every request.
const apiVersion = "2018-01-01"

// door is one way to publish: what Event Grid has for one kind of topic.
type door struct {
	kind store.TopicKind
	// versions are the values of api-version.
	versions []string
	// cloudEventsOnly refuses a body that is not marked as CloudEvents.
	cloudEventsOnly bool
}

var (
	customTopics = door{kind: store.TopicBasic, versions: []string{apiVersion}}
	// Source: Microsoft, Azure REST API, Event Grid data plane, 2023-11-01 and 2024-06-01.
	namespaceTopics = door{kind: store.TopicNamespace, versions: []string{"2023-11-01", "2024-06-01"}, cloudEventsOnly: true}
)

// publish stores the request's events, all or none, and answers 200 with an empty body after the commit. Microsoft's
// SDKs take any other status, 202 included, for a failure.
func (s *Server) publish(c echo.Context) error {
	if err := s.publishBy(&customTopics, c, pathValue(c, "topic")); err != nil {
		return err
	}
	return c.NoContent(http.StatusOK)
}

// publishToNamespace is publish for namespace topics. Their operations follow the topic's name after a colon, which the router
// cannot cut off; publish is the only one there is.
func (s *Server) publishToNamespace(c echo.Context) error {
	topic, publishing := strings.CutSuffix(pathValue(c, "operation"), ":publish")
	if !publishing {
		return echo.ErrNotFound
	}
	if err := s.publishBy(&namespaceTopics, c, topic); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, struct{}{})
}

// The body is read on the raw bytes and not by the generated handlers: those refuse the content type of a CloudEvents
// batch and would turn large numbers into floating point.
func (s *Server) publishBy(d *door, c echo.Context, topic string) error {
	r, began := c.Request(), time.Now()
	credential, err := s.credential(r)
	if err != nil {
		return err
	}
	if err := d.checkVersion(r.URL); err != nil {
		return err
	}
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return err
	}
	from := sender(r.RemoteAddr)
	if wait := s.guesses.wait(from, topic, credential.digest, time.Now()); wait > 0 && !credential.person {
		return tooManyGuesses(wait, "from your address")
	}
	if err := s.lookUp(r.Context(), &credential, topic); err != nil {
		return s.notOpened(from, topic, &credential, err)
	}
	// Read before the store is asked: a slow publisher holds nothing but its own connection.
	body, err := readBody(r)
	if err != nil {
		return err
	}
	// The events share the body's memory; the store keeps none of it once Publish has returned.
	defer free(body)
	receipt, err := s.store.Publish(r.Context(), store.Publication{
		Topic:          topic,
		Authorize:      credential.opens,
		IdempotencyKey: key,
		Parse: func(t *store.Topic) ([]event.Event, error) {
			if err := d.check(t, r.Header); err != nil {
				return nil, err
			}
			return inputOf(t).ParseRequest(r.Header, body.Bytes())
		},
	})
	if err != nil {
		return s.notOpened(from, topic, &credential, err)
	}
	if !credential.person {
		s.guesses.opened(from, topic, credential.digest)
	}
	took := time.Since(began)
	s.stats.stored(topic, receipt, took)
	if s.options.OnPublish != nil && !receipt.Repeated {
		s.options.OnPublish(reportOf(topic, receipt, took))
	}
	return nil
}

// reportOf leaves duplicates out.
func reportOf(topic string, r *store.Receipt, took time.Duration) PublishReport {
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

// idempotencyKey names the publish, so that whoever got no answer may send it again. The header is the one of the IETF's draft
// (draft-ietf-httpapi-idempotency-key-header-07, 2025-10-15) and of Stripe's API; quotes around it, which the draft asks for, are part of it here.
func idempotencyKey(header http.Header) (string, error) {
	given := header.Values("Idempotency-Key")
	if len(given) == 0 {
		return "", nil
	}
	if len(given) > 1 || given[0] == "" || len(given[0]) > store.MaxIdempotencyKey {
		return "", invalid("Idempotency-Key", "must be one header of 1 to %d bytes", store.MaxIdempotencyKey)
	}
	return given[0], nil
}

// check refuses a topic of another kind, and what only this kind refuses.
func (d *door) check(t *store.Topic, header http.Header) error {
	switch {
	case t.Name == store.SystemTopic:
		return refuse(http.StatusBadRequest, codeInvalidRequest, "topic %q is postrider's own: it is subscribed to, and not published to", t.Name)
	case t.Kind != d.kind:
		return refuse(http.StatusBadRequest, codeInvalidRequest, "topic %q is of kind %s: publish to %s", t.Name, t.Kind, endpointOf(t))
	case !d.cloudEventsOnly || event.IsBinary(header):
		return nil
	}
	media, _, _ := mime.ParseMediaType(header.Get(echo.HeaderContentType))
	if media == "application/cloudevents+json" || media == "application/cloudevents-batch+json" {
		return nil
	}
	return refuse(http.StatusUnsupportedMediaType, codeUnsupportedMediaType,
		"a namespace topic takes application/cloudevents+json and application/cloudevents-batch+json, and any other type with the attributes in ce- headers")
}

// inputOf is what the topic says of its input, and what an event gets that may leave out its id and time.
func inputOf(t *store.Topic) event.Input {
	return event.Input{Schema: t.InputSchema, Topic: t.Name, Mapping: t.InputSchemaMapping, NewID: uuid.NewString, Now: time.Now(), Limits: event.DefaultLimits()}
}

func (d *door) checkVersion(u *url.URL) error {
	if u.RawQuery == "" {
		return nil
	}
	if v, given := u.Query()["api-version"]; given && !slices.Contains(d.versions, v[0]) {
		return invalid("api-version", "must be %s, or be left out", strings.Join(d.versions, " or "))
	}
	return nil
}

// pathValue is a decoded part of the path. Echo matches the encoded path when the client encoded more than it had to.
func pathValue(c echo.Context, name string) string {
	value := c.Param(name)
	if c.Request().URL.RawPath == "" {
		return value
	}
	if decoded, err := url.PathUnescape(value); err == nil {
		return decoded
	}
	return value
}

// notOpened answers what keeps a publication out.
func (s *Server) notOpened(from netip.Prefix, topic string, c *credential, err error) error {
	switch {
	case errors.Is(err, store.ErrUnauthorized):
		return s.guessed(from, topic, "for this topic", c.refusal())
	case errors.Is(err, store.ErrNotFound):
		return topicNotFound(topic)
	default:
		return err
	}
}

// guessed answers a wrong credential. place is where it was shown: a topic, or management.
func (s *Server) guessed(from netip.Prefix, place, whose string, refusal error) error {
	if wait := s.guesses.wrong(from, place, time.Now()); wait > 0 {
		return tooManyGuesses(wait, whose)
	}
	return refusal
}
