package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
)

// What this node has closed counts before it is stored, and a sample that began before does not change it.
func TestClosedBeforeItIsStored(t *testing.T) {
	t.Parallel()
	c, began := NewClosedEndpoints(nil, nil), time.Now()
	sub := &catalog.Subscription{EndpointHash: []byte("a")}
	key := closedKey(sub)
	require.Equal(t, EndpointOpen, c.state(key, began))
	c.Close(sub, time.Minute)
	c.Close(sub, time.Second)
	<-c.Changed()
	for _, sampled := range []time.Time{began, time.Now()} {
		c.keep(nil, sampled)
		require.Equal(t, EndpointClosed, c.state(key, time.Now().Add(50*time.Second)))
		require.Equal(t, EndpointHalfOpen, c.state(key, time.Now().Add(time.Minute)))
	}
	c.known[key] = closing{until: c.known[key].until, changedAt: began}
	c.keep(map[string]time.Duration{"other": 0}, time.Now())
	require.Equal(t, EndpointOpen, c.state(key, time.Now()), "another node has opened it")
	require.Equal(t, EndpointHalfOpen, c.state("other", time.Now()))
}

// What a node has closed and not yet stored is forgotten with everything else that it knows of queues.
func TestForgetTraffic(t *testing.T) {
	t.Parallel()
	c := NewClosedEndpoints(nil, nil)
	traffic := NewTraffic(nil, nil, c, nil)
	sub := &catalog.Subscription{EndpointHash: []byte("a")}
	c.Close(sub, time.Minute)
	traffic.AddOne(1, 5)
	traffic.crowded = map[int64]bool{1: true}
	traffic.limited[1] = true
	_, spaced := traffic.spacing.space(catalog.Rate{Key: "a", Step: time.Second, Burst: 1}, 1, time.Now())
	require.True(t, spaced)
	traffic.Forget()
	c.keep(nil, time.Now())
	require.Equal(t, EndpointOpen, c.state(closedKey(sub), time.Now()))
	require.Equal(t, []int{0, 0, 0, 0, 0}, []int{
		len(traffic.since), len(traffic.before), len(traffic.crowded), len(traffic.limited), len(traffic.spacing.next),
	})
}
