package server

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/jobs/publish"
	"postrider/server/api"
)

// Dev are the options of postrider dev. Its routes are not in the OpenAPI document: no other server has them.
type Dev struct {
	// AnyBearer accepts every bearer token of publishers and consumers, as a TokenCredential of Azure's SDKs sends it.
	// Bearer tokens that are API keys are checked all the same.
	AnyBearer bool
	// DemoTopic is not meant by a root URL if there is another topic.
	DemoTopic string
	// Reset restores the state that dev had when it was ready. No publish is in progress meanwhile.
	Reset func(context.Context) error
}

// addDevRoutes adds the routes that only postrider dev has.
func (s *Server) addDevRoutes() {
	if s.options.Dev == nil {
		return
	}
	s.echo.POST("/api/events", s.finish(s.toHost(s.publishTo)))
	s.echo.OPTIONS("/api/events", s.finish(s.toHost(s.allowRelayTo)))
	s.echo.DELETE("/v1/dev/state", s.finish(s.auth.Permit(access.RoleAdmin)(s.resetState)))
}

// publishBetweenResets lets a publish wait for the end of a reset, and a reset for the end of a publish. The body has
// been read: no client delays a reset.
func (s *Server) publishBetweenResets(ctx context.Context, p publish.Publication) (*publish.Receipt, error) {
	if s.options.Dev != nil {
		s.publishing.RLock()
		defer s.publishing.RUnlock()
	}
	return s.parts.Publisher.Publish(ctx, p)
}

func (s *Server) resetState(c echo.Context) error {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	if err := s.options.Dev.Reset(c.Request().Context()); err != nil {
		return err
	}
	s.relayed.take() // of feeds that the reset has removed
	return c.NoContent(http.StatusNoContent)
}

// toHost serves a request at the path that Event Grid has at a topic's own host.
func (s *Server) toHost(serve func(c echo.Context, topic string) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		topic, err := s.topicOfHost(c.Request().Context(), c.Request().Host)
		if err != nil {
			return err
		}
		return serve(c, topic)
	}
}

// topicOfHost is the topic that the first label of a host names, in any letter case, or else the only topic.
func (s *Server) topicOfHost(ctx context.Context, host string) (string, error) {
	if err := s.parts.Cache.Confirm(ctx); err != nil { // a topic may have been created a moment ago
		return "", err
	}
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	label, _, _ := strings.Cut(name, ".")
	var topics, others []string
	for t := range s.parts.Cache.Snapshot().Topics() {
		if t.Kind != catalog.TopicBasic || t.Name == catalog.SystemTopic {
			continue
		}
		if _, err := netip.ParseAddr(name); err != nil && strings.EqualFold(t.Name, label) {
			return t.Name, nil
		}
		if topics = append(topics, t.Name); t.Name != s.options.Dev.DemoTopic {
			others = append(others, t.Name)
		}
	}
	for _, candidates := range [][]string{others, topics} {
		if len(candidates) == 1 {
			return candidates[0], nil
		}
	}
	slices.Sort(topics)
	return "", api.NotFound("host %q names none of the topics (%s): publish to /topics/{topic}/api/events, or to a host "+
		"whose first label is a topic, such as {topic}.localhost", api.Shorten(host), api.Shorten(strings.Join(topics, ", ")))
}
