package server

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/internal/access"
	"postrider/server/api"
	"postrider/server/auth"
)

const (
	// rejectionsInterval is how often rejected requests are recorded.
	rejectionsInterval = time.Minute
	// rejectionsTimeout limits the time of recording.
	rejectionsTimeout = 5 * time.Second
	// maxRejections limits the kinds in one interval, separately for unauthenticated clients and for known actors. Further
	// rejections are counted by actor and status only.
	maxRejections = 100
	// unauthenticated is the audit's actor for clients without a valid credential.
	unauthenticated = "unauthenticated"
)

// rejection is one kind of rejected requests: 401, 403 or 429.
type rejection struct {
	from         netip.Prefix // an address, or an IPv6 /64; zero for the rest
	actor, topic string       // topic is set only if it exists
	status       int
}

// rejections counts the rejected requests of the current interval, without credentials.
type rejections struct {
	mu               sync.Mutex
	anonymous, known map[rejection]int
}

// noteRejections counts rejected requests. It follows limitRate, whose rejections are not counted.
func (s *Server) noteRejections(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		err := next(c)
		if err != nil {
			s.noteRejection(c, err)
		}
		return err
	}
}

// noteRejection counts a request that was rejected for its credential or its role.
func (s *Server) noteRejection(c echo.Context, err error) {
	var rejected *api.RejectionError
	if !errors.As(err, &rejected) {
		return
	}
	switch rejected.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
	default:
		return
	}
	kind := rejection{
		from: auth.Sender(c.Request().RemoteAddr), actor: unauthenticated, topic: s.topicOf(c), status: rejected.Status,
	}
	if rejected.Actor != "" {
		kind.actor = rejected.Actor
	} else if who := access.ActorOf(c.Request().Context()); who.Role != "" {
		kind.actor = who.Name
	}
	s.rejections.mu.Lock()
	defer s.rejections.mu.Unlock()
	counts := s.rejections.known
	if kind.actor == unauthenticated {
		counts = s.rejections.anonymous
	}
	if _, counted := counts[kind]; !counted && len(counts) >= maxRejections {
		kind = rejection{actor: kind.actor, status: kind.status}
	}
	counts[kind]++
}

// topicOf is the topic that a request names, if it exists.
func (s *Server) topicOf(c echo.Context) string {
	topic, exists := s.parts.Cache.Snapshot().Topic(api.PathValue(c, "topic"))
	if !exists {
		return ""
	}
	return topic.Name
}

func (r *rejections) take() map[rejection]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.anonymous
	maps.Copy(taken, r.known)
	r.anonymous, r.known = map[rejection]int{}, map[rejection]int{}
	return taken
}

// Run records the rejected requests in the log and the audit each minute until ctx ends, and the requests of relay
// feeds each ten seconds, and then the rest.
func (s *Server) Run(ctx context.Context) {
	ticks, relayed := time.NewTicker(rejectionsInterval), time.NewTicker(relayedInterval)
	defer ticks.Stop()
	defer relayed.Stop()
	for {
		select {
		case <-ticks.C:
			s.writeRejections(ctx)
		case <-relayed.C:
			s.writeRelayed(ctx)
		case <-ctx.Done():
			s.writeRejections(context.WithoutCancel(ctx))
			s.writeRelayed(context.WithoutCancel(ctx))
			return
		}
	}
}

func (s *Server) writeRejections(ctx context.Context) {
	taken := s.rejections.take()
	if len(taken) == 0 {
		return
	}
	rows := make([]access.Rejection, 0, len(taken))
	for kind, times := range taken {
		row := access.Rejection{
			Actor: kind.actor, Address: addressText(kind.from), Topic: kind.topic, Status: kind.status, Times: times,
		}
		s.log.Warn("requests rejected", "client", row.Address, "actor", row.Actor, "topic", row.Topic, "status", row.Status,
			"times", times)
		rows = append(rows, row)
	}
	ctx, cancel := context.WithTimeout(ctx, rejectionsTimeout)
	defer cancel()
	if err := s.parts.Access.NoteRejections(ctx, rows); err != nil {
		s.log.Error("rejected requests could not be recorded in the audit", "error", err)
	}
}

// addressText is an IPv4 address, or an IPv6 /64; "" for many addresses.
func addressText(from netip.Prefix) string {
	if !from.IsValid() {
		return ""
	}
	if from.IsSingleIP() {
		return from.Addr().String()
	}
	return from.String()
}
