package e2e

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An attempt that could not begin is deferred. The response to that commit is lost and it is tried again 3 s
// later, it must not touch the job's next run, which has begun by then: an attempt makes one request at a time.
func TestPuttingOffLeavesTheNextRunAlone(t *testing.T) {
	t.Parallel()
	const loads, putsOff = "sum(octet_length(e.body))", "JobSetStateIfRunningMany"
	db, sink := migratedDatabase(t), newGate(t)
	w := newWire(t, db)
	n := startNode(t, w.through(db))
	key := n.topic("orders")
	n.subscribe("orders", "billing", sink.url)
	loading, putOff, again := new(atomic.Int64), new(atomic.Int64), new(atomic.Int64)
	first, committed, missed := losesQuestions(loads, 1, loading), losesResponses(putsOff, 1, putOff),
		losesQuestions(putsOff, 1, again)
	w.breaks(func(l *wireLine, m wireMessage) fate {
		switch done := first(l, m); {
		case done != handOn:
			return done
		case putOff.Load() == 0:
			return committed(l, m)
		default:
			return missed(l, m)
		}
	})
	n.publish("orders", key, cloudEvent("e1"))
	eventually(t, "the request is in flight", func() bool { return sink.held() == 1 })
	<-time.After(4 * time.Second)
	require.Equal(t, 1, sink.held(), "requests of one attempt at the same time")
	sink.open()
	db.drained()
	requireEndedOnce(t, db)
}
