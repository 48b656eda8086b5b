package delivery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/jobs/queue"
	"postrider/policy"
)

// twoSubscriptions is one event subscription of each scope of probation: the first by endpoint, the second by itself.
func twoSubscriptions() []*catalog.Subscription {
	return []*catalog.Subscription{
		{ID: 1, EndpointHash: []byte("endpoint"), SubscriptionSpec: catalog.SubscriptionSpec{
			RetryPolicy: catalog.RetryPolicySpec{Policy: "by endpoint"},
		}},
		{ID: 2, EndpointHash: []byte("other"), SubscriptionSpec: catalog.SubscriptionSpec{
			RetryPolicy: catalog.RetryPolicySpec{Policy: "by itself"},
		}},
	}
}

func withTwo(subs []*catalog.Subscription) *catalog.Snapshot {
	return catalog.NewSnapshot(1, nil, subs, map[string]*policy.Policy{
		"by endpoint": {Probation: policy.Probation{Scope: policy.ProbationEndpoint}},
		"by itself":   {Probation: policy.Probation{Scope: policy.ProbationEventSubscription}},
	})
}

// remembering has the parts that remember event subscriptions, without a database.
type remembering struct {
	Loader   *Loader
	Recorder *Recorder
}

func newRemembering(c *catalog.Snapshot) *remembering {
	cache := catalog.StaticCache(c)
	return &remembering{
		Loader: NewLoader(LoaderParts{Cache: cache}), Recorder: NewRecorder(RecorderParts{Cache: cache}),
	}
}

func (f *remembering) Forget() {
	f.Loader.Forget()
	f.Recorder.Forget()
}

func TestForgetKeepsExistingEventSubscriptions(t *testing.T) {
	t.Parallel()
	subs := twoSubscriptions()
	c := withTwo(subs)
	s := newRemembering(c)
	gone := &catalog.Subscription{
		ID: 3, SubscriptionSpec: catalog.SubscriptionSpec{RetryPolicy: catalog.RetryPolicySpec{Policy: "by itself"}},
	}
	for _, sub := range []*catalog.Subscription{subs[0], subs[1], gone} {
		s.Loader.cuts.of(sub.ID)
		for _, key := range c.ProbationKeys(sub) {
			s.Recorder.failing.Store(string(key), true)
		}
	}
	s.Recorder.failing.Store("endpoint without event subscriptions", true)
	kept := s.Loader.cuts.of(1)

	s.Forget()

	require.Len(t, s.Loader.cuts.all, 2)
	require.Same(t, kept, s.Loader.cuts.of(1))
	require.ElementsMatch(t, []string{"endpoint", string(c.ProbationKeys(subs[1])[0])}, failingKeys(s.Recorder))
}

// A batch cutter may run when its event subscription is deleted.
func TestForgetKeepsRunningCutters(t *testing.T) {
	t.Parallel()
	s := newRemembering(withTwo(nil))
	c := s.Loader.cuts.of(7)
	first := c.enter(queue.JobToken{JobID: 1}, 0)
	waiting := make(chan *cutter)
	go func() { waiting <- c.enter(queue.JobToken{JobID: 2}, 0) }()
	require.Eventually(t, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.waiting) == 1 }, 10*time.Second,
		time.Millisecond)
	s.Forget()
	require.Same(t, c, s.Loader.cuts.of(7))
	c.leave(first, false)
	second := <-waiting
	s.Forget()
	require.Same(t, c, s.Loader.cuts.of(7))
	c.leave(second, true)
	s.Forget()
	require.Empty(t, s.Loader.cuts.all)
}
