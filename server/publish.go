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

	"github.com/labstack/echo/v4"

	"postrider/catalog"
	"postrider/event"
	"postrider/jobs/publish"
	"postrider/postgres"
	"postrider/server/api"
	"postrider/server/auth"
	"postrider/server/management"
)

// apiVersion is the one data-plane version of Event Grid's custom topics; its SDKs send it with every request.
const apiVersion = "2018-01-01"

// door is one way to publish: what Event Grid has for one kind of topic.
type door struct {
	kind catalog.TopicKind
	// versions are the values of api-version.
	versions []string
	// cloudEventsOnly refuses a body that is not marked as CloudEvents.
	cloudEventsOnly bool
}

var (
	customTopics = door{kind: catalog.TopicBasic, versions: []string{apiVersion}}
	// Source: Microsoft, Azure REST API, Event Grid data plane, 2023-11-01 and 2024-06-01.
	namespaceTopics = door{
		kind: catalog.TopicNamespace, versions: []string{"2023-11-01", "2024-06-01"}, cloudEventsOnly: true,
	}
)

// publish stores the request's events, all or none, and answers 200 with an empty body after the commit. Microsoft's
// SDKs take any other status, 202 included, for a failure.
func (s *Server) publish(c echo.Context) error {
	if err := s.publishBy(&customTopics, c, api.PathValue(c, "topic")); err != nil {
		return err
	}
	return c.NoContent(http.StatusOK)
}

// publishToNamespace is publish for namespace topics. Their operations follow the topic's name after a colon, which the
// router cannot cut off; publish is the only one there is.
func (s *Server) publishToNamespace(c echo.Context) error {
	topic, publishing := strings.CutSuffix(api.PathValue(c, "operation"), ":publish")
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
	credential, err := s.auth.Credential(r)
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
	from := auth.Sender(r.RemoteAddr)
	if wait := s.auth.Guesses.Wait(from, topic, credential.Digest, time.Now()); wait > 0 && !credential.Person {
		return api.TooManyGuesses(wait, "from your address")
	}
	if err := s.auth.LookUp(r.Context(), &credential, topic); err != nil {
		return s.notOpened(from, topic, &credential, err)
	}
	// Read before the store is asked: a slow publisher holds nothing but its own connection.
	body, err := api.ReadBody(r)
	if err != nil {
		return err
	}
	// The events share the body's memory; the store keeps none of it once Publish has returned.
	defer api.Free(body)
	receipt, err := s.parts.Publisher.Publish(r.Context(), publish.Publication{
		Topic:          topic,
		Authorize:      credential.Opens,
		IdempotencyKey: key,
		Parse: func(t *catalog.Topic) ([]event.Event, error) {
			if err := d.check(t, r.Header); err != nil {
				return nil, err
			}
			return management.InputOf(t).ParseRequest(r.Header, body.Bytes())
		},
	})
	if err != nil {
		return s.notOpened(from, topic, &credential, err)
	}
	if !credential.Person {
		s.auth.Guesses.Opened(from, topic, credential.Digest)
	}
	took := time.Since(began)
	s.options.Counters.stored(topic, receipt, took)
	if s.options.OnPublish != nil && !receipt.Repeated {
		s.options.OnPublish(reportOf(topic, receipt, took))
	}
	return nil
}

// reportOf leaves duplicates out.
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

// idempotencyKey names the publish, so that whoever got no answer may send it again. The header is the one of the
// IETF's draft (draft-ietf-httpapi-idempotency-key-header-07, 2025-10-15) and of Stripe's API; quotes around it, which
// the draft asks for, are part of it here.
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

// check refuses a topic of another kind, and what only this kind refuses.
func (d *door) check(t *catalog.Topic, header http.Header) error {
	switch {
	case t.Name == catalog.SystemTopic:
		return api.Refuse(http.StatusBadRequest, api.CodeInvalidRequest,
			"topic %q is postrider's own: it is subscribed to, and not published to", t.Name)
	case t.Kind != d.kind:
		return api.Refuse(http.StatusBadRequest, api.CodeInvalidRequest, "topic %q is of kind %s: publish to %s", t.Name,
			t.Kind, management.EndpointOf(t))
	case !d.cloudEventsOnly || event.IsBinary(header):
		return nil
	}
	media, _, _ := mime.ParseMediaType(header.Get(echo.HeaderContentType))
	if media == "application/cloudevents+json" || media == "application/cloudevents-batch+json" {
		return nil
	}
	return api.Refuse(http.StatusUnsupportedMediaType, api.CodeUnsupportedMediaType,
		"a namespace topic takes application/cloudevents+json and application/cloudevents-batch+json, and any other type "+
			"with the attributes in ce- headers")
}

func (d *door) checkVersion(u *url.URL) error {
	if u.RawQuery == "" {
		return nil
	}
	if v, given := u.Query()["api-version"]; given && !slices.Contains(d.versions, v[0]) {
		return api.Invalid("api-version", "must be %s, or be left out", strings.Join(d.versions, " or "))
	}
	return nil
}

// notOpened answers what keeps a publication out.
func (s *Server) notOpened(from netip.Prefix, topic string, c *auth.Credential, err error) error {
	switch {
	case errors.Is(err, publish.ErrUnauthorized):
		return s.auth.Guessed(from, topic, "for this topic", c.Rejection())
	case errors.Is(err, postgres.ErrNotFound):
		return api.TopicNotFound(topic)
	default:
		return err
	}
}
