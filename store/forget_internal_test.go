package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/policy"
)

// withTwo has an event subscription of each scope of probation: 1 rests with its endpoint, 2 by itself.
func withTwo() *Catalogue {
	c := emptyCatalogue()
	c.policies["by endpoint"] = &policy.Policy{Probation: policy.Probation{Scope: policy.ProbationEndpoint}}
	c.policies["by itself"] = &policy.Policy{Probation: policy.Probation{Scope: policy.ProbationEventSubscription}}
	c.subs[1] = &Subscription{ID: 1, EndpointHash: []byte("endpoint"), SubscriptionSpec: SubscriptionSpec{RetryPolicy: "by endpoint"}}
	c.subs[2] = &Subscription{ID: 2, EndpointHash: []byte("other"), SubscriptionSpec: SubscriptionSpec{RetryPolicy: "by itself"}}
	return c
}

// forgetful is a store with a catalogue and without a database.
func forgetful(c *Catalogue) *Store {
	cache := &Cache{}
	cache.catalogue.Store(c)
	return &Store{
		Cache: cache, Loader: NewLoader(LoaderParts{Cache: cache}, nil), Recorder: NewRecorder(RecorderParts{Cache: cache}, nil),
	}
}

func TestForgetLeavesWhatIsThere(t *testing.T) {
	t.Parallel()
	c := withTwo()
	s := forgetful(c)
	gone := &Subscription{ID: 3, SubscriptionSpec: SubscriptionSpec{RetryPolicy: "by itself"}}
	for _, sub := range []*Subscription{c.subs[1], c.subs[2], gone} {
		s.cutters.of(sub.ID)
		s.failing.set(string(c.restKey(sub)), true)
	}
	s.failing.set("endpoint of nobody", true)
	kept := s.cutters.of(1)

	s.Forget()

	require.Len(t, s.cutters.all, 2)
	require.Same(t, kept, s.cutters.of(1))
	require.Len(t, s.failing.keys, 2)
	require.True(t, s.failing.has("endpoint"))
	require.True(t, s.failing.has(string(c.restKey(c.subs[2]))))
}

// A pump may be at work when its event subscription is deleted.
func TestForgetLeavesCuttersAtWork(t *testing.T) {
	t.Parallel()
	s := forgetful(emptyCatalogue())
	c := s.cutters.of(7)
	first := c.enter(JobToken{JobID: 1})
	waiting := make(chan *pump)
	go func() { waiting <- c.enter(JobToken{JobID: 2}) }()
	require.Eventually(t, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.waiting) == 1 }, 10*time.Second, time.Millisecond)
	s.Forget()
	require.Same(t, c, s.cutters.of(7))
	c.leave(first, false)
	second := <-waiting
	s.Forget()
	require.Same(t, c, s.cutters.of(7))
	c.leave(second, true)
	s.Forget()
	require.Empty(t, s.cutters.all)
}
