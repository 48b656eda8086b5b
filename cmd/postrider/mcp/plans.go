package mcp

import (
	"crypto/rand"
	"errors"
	"maps"
	"sync"
	"time"

	"postrider/cmd/postrider/cli/rest"
)

// tokenLifetime is how long a plan can be used, from its dry run.
const tokenLifetime = 5 * time.Minute

// plan is what a dry run has shown. The ids are frozen in the selection on the server.
type plan struct {
	actor     string // of the key
	chosen    string // how the dead letters were chosen
	selection string
	count     string
	options   rest.Object // of the redelivery
	asked     bool        // a person is asked to confirm
	expires   time.Time
}

// plans are the plans of this process, by their tokens.
type plans struct {
	now func() time.Time

	mu     sync.Mutex
	stored map[string]*plan
}

func newPlans() *plans { return &plans{now: time.Now, stored: map[string]*plan{}} }

// put stores a plan under a new token. A plan that was stored before keeps the end of its time.
func (s *plans) put(p *plan) (token string, expires time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.stored, func(_ string, p *plan) bool { return !s.now().Before(p.expires) })
	if p.expires.IsZero() {
		p.expires = s.now().Add(tokenLifetime)
	}
	token = rand.Text()
	s.stored[token] = p
	return token, p.expires.UTC()
}

// take removes the plan of a token: it works once.
func (s *plans) take(token string, asked bool) (*plan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.stored[token]
	if p == nil || p.asked != asked || !s.now().Before(p.expires) {
		return nil, errors.New("the token is not valid: it works once, within 5 minutes of its dry run; begin again " +
			"with a dry run")
	}
	delete(s.stored, token)
	return p, nil
}
