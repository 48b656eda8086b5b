package kafka

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A group has at most maxGroupBytes, unless it is one record, and partitions as one response described them.
func TestTake(t *testing.T) {
	t.Parallel()
	s := newProducer(nil, "events", 0)
	before, after := &topic{}, &topic{}
	l := &lane{sending: true}
	for _, kilobytes := range []int{10, 300, 100, 100, 100, 10} {
		p := &pending{topic: before, record: &kmsg.Record{Value: make([]byte, kilobytes*1024)}}
		l.waiting = append(l.waiting, p)
	}
	l.waiting[5].topic = after
	for _, want := range []int{1, 1, 2, 1, 1, 0} {
		require.Len(t, s.take(l), want)
		require.Equal(t, want > 0, l.sending)
	}
}
