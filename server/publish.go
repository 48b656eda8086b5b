package server

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/event"
	"postrider/store"
)

// apiVersion is the one data-plane version of Event Grid's custom topics; its SDKs send it with every request.
const apiVersion = "2018-01-01"

// publish stores the request's events, all or none, and answers 200 with an empty body after the commit. Microsoft's
// SDKs take any other status, 202 included, for a failure.
//
// The body is read on the raw bytes and not by the generated handlers: those refuse the content type of a CloudEvents
// batch and would turn large numbers into floating point.
func (s *Server) publish(c echo.Context) error {
	r := c.Request()
	credential, err := s.credential(r)
	if err != nil {
		return err
	}
	if err := checkVersion(r.URL); err != nil {
		return err
	}
	topic, from := pathValue(c, "topic"), sender(r.RemoteAddr)
	if wait := s.guesses.wait(from, topic, credential.digest, time.Now()); wait > 0 {
		return tooManyGuesses(wait, "from your address")
	}
	// Read before the store is asked: a slow publisher holds nothing but its own connection.
	body, err := readBody(r)
	if err != nil {
		return err
	}
	// The events share the body's memory; the store keeps none of it once Publish has returned.
	defer free(body)
	receipt, err := s.store.Publish(r.Context(), store.Publication{
		Topic:     topic,
		Authorize: credential.opens,
		Parse: func(t *store.Topic) ([]event.Event, error) {
			return event.Parse(t.InputSchema, r.Header.Get(echo.HeaderContentType), body.Bytes(), t.Name, event.DefaultLimits())
		},
	})
	if errors.Is(err, store.ErrUnauthorized) {
		return s.guessed(from, topic, &credential)
	}
	if err != nil {
		return publishError(topic, err)
	}
	s.guesses.opened(topic, credential.digest)
	if s.options.OnPublish != nil {
		s.options.OnPublish(PublishReport{Topic: topic, Events: receipt.Events, Matched: receipt.Matched})
	}
	return c.NoContent(http.StatusOK)
}

func checkVersion(u *url.URL) error {
	if u.RawQuery == "" {
		return nil
	}
	if v, given := u.Query()["api-version"]; given && v[0] != apiVersion {
		return invalid("api-version", "must be %s, the only version there is, or be left out", apiVersion)
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

// guessed answers a wrong credential.
func (s *Server) guessed(from netip.Prefix, topic string, c *credential) error {
	if wait := s.guesses.wrong(from, topic, time.Now()); wait > 0 {
		return tooManyGuesses(wait, "for this topic")
	}
	return c.refusal()
}

func publishError(topic string, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return topicNotFound(topic)
	}
	return err
}
