package server

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/server/api"
	"postrider/server/auth"
)

const (
	// rejectionsEvery is how often rejected requests are written down, and the span that one row counts.
	rejectionsEvery = time.Minute
	// mostRejections bounds the kinds of one span, for clients without a right credential and for known actors apart.
	// Rejections beyond it are counted by actor and status alone.
	mostRejections = 100
	// unauthenticated is what the audit calls a client without a right credential, or whose credential is not checked
	// after too many wrong ones.
	unauthenticated = "unauthenticated"
)

// rejection is one kind of rejected requests: 401, 403 or 429.
type rejection struct {
	from         netip.Prefix // an address, or an IPv6 /64; zero for the rest
	actor, topic string       // topic only where it exists: a name that a client made up may be anything
	status       int
}

// rejections counts the rejected requests of the current span. It never has a credential.
type rejections struct {
	mu               sync.Mutex
	anonymous, known map[rejection]int
}

func newRejections() *rejections {
	return &rejections{anonymous: map[rejection]int{}, known: map[rejection]int{}}
}

// noteRejections counts rejected requests. It comes after limitRate, which rejects requests before their credentials
// are checked.
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
	var refused *api.RejectionError
	if !errors.As(err, &refused) {
		return
	}
	switch refused.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
	default:
		return
	}
	kind := rejection{
		from: auth.Sender(c.Request().RemoteAddr), actor: unauthenticated, topic: s.topicOf(c), status: refused.Status,
	}
	if refused.Actor != "" {
		kind.actor = refused.Actor
	} else if who := access.ActorOf(c.Request().Context()); who.Role != "" {
		kind.actor = who.Name
	}
	s.rejections.add(kind)
}

// topicOf is the topic that a request names, if it exists.
func (s *Server) topicOf(c echo.Context) string {
	name, publishes := publishTopic(c)
	if !publishes {
		name = api.PathValue(c, "topic")
	}
	topic, exists := s.parts.Cache.Snapshot().Topic(name)
	if !exists {
		return ""
	}
	return topic.Name
}

func (r *rejections) add(kind rejection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := r.known
	if kind.actor == unauthenticated {
		counts = r.anonymous
	}
	if _, counted := counts[kind]; !counted && len(counts) >= mostRejections {
		kind = rejection{actor: kind.actor, status: kind.status}
	}
	counts[kind]++
}

func (r *rejections) take() map[rejection]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.anonymous
	maps.Copy(taken, r.known)
	r.anonymous, r.known = map[rejection]int{}, map[rejection]int{}
	return taken
}

// Run writes the rejected requests of each minute into the log and the audit until ctx ends, and then those that are
// left.
func (s *Server) Run(ctx context.Context) {
	ticks := time.NewTicker(rejectionsEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			s.writeRejections(ctx)
		case <-ctx.Done():
			s.writeRejections(context.WithoutCancel(ctx))
			return
		}
	}
}

// rejectionsTime bounds the writing: the next span, or the end of the program, does not wait for a database.
const rejectionsTime = 5 * time.Second

func (s *Server) writeRejections(ctx context.Context) {
	taken := s.rejections.take()
	if len(taken) == 0 {
		return
	}
	rows := make([]access.Rejection, 0, len(taken))
	for _, kind := range slices.Collect(maps.Keys(taken)) {
		row := access.Rejection{
			Actor: kind.actor, Address: addressText(kind.from), Topic: kind.topic, Status: kind.status, Times: taken[kind],
		}
		s.log.Warn("requests rejected", "client", row.Address, "actor", row.Actor, "topic", row.Topic, "status", row.Status,
			"times", row.Times)
		rows = append(rows, row)
	}
	ctx, cancel := context.WithTimeout(ctx, rejectionsTime)
	defer cancel()
	if err := s.parts.Access.NoteRejections(ctx, rows); err != nil {
		s.log.Error("rejected requests are missing in the audit", "error", err)
	}
}

// addressText is the address alone for IPv4, and the /64 for IPv6; "" for many addresses.
func addressText(from netip.Prefix) string {
	switch {
	case !from.IsValid():
		return ""
	case from.IsSingleIP():
		return from.Addr().String()
	default:
		return from.String()
	}
}
