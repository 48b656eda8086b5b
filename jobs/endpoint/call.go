package endpoint

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"postrider/policy"
)

const (
	// maxLateCalls bounds the calls of one node that stay open past their ack timeout. Under ga-2021 a worker gives up a
	// hanging call every 30 s and each stays open for 150 s more: 1,000 workers would leave 5,000 sockets. A call costs
	// one, and four goroutines, 33 KB with its buffers (measured, without TLS): 256 are 8 MB. What is beyond the bound is
	// cut at its ack timeout, as under a policy without a window.
	maxLateCalls = 256
	// lateReadPatience is how long the body of a late answer is read: its status decides, and each second that it waits
	// the retry may begin.
	lateReadPatience = time.Second
)

// The phases of a call. The answer and the ack timeout race for the way out of the first: one of them wins.
const (
	callWaiting  int32 = iota
	callAnswered       // the status arrived in time
	callLate           // the attempt has ended as timed out, and the call stays open
)

// Call is one request in progress. It may outlive its attempt.
type Call struct {
	url    string
	header http.Header
	body   *Payload
	by     *policy.Connection // nil = nothing of its own
	watch  *stopwatch
	phase  atomic.Int32

	// Of calls that may stay open only.
	cut context.CancelCauseFunc
	met chan reply // gets one
}

// reply is what exchange returned.
type reply struct {
	answer Answer
	err    error
}

func newCall(url string, header http.Header, body *Payload) *Call {
	return &Call{url: url, header: header, body: body, watch: &stopwatch{started: time.Now()}}
}

func (k *Call) elapsed() time.Duration { return time.Since(k.watch.started) }

// answered is told when the status has arrived. It bounds the reading of a late answer's body, until done is called.
func (k *Call) answered() (done func()) {
	if k.phase.CompareAndSwap(callWaiting, callAnswered) {
		return func() {}
	}
	patience := time.AfterFunc(lateReadPatience, func() { k.cut(context.DeadlineExceeded) })
	return func() { patience.Stop() }
}

// lateCalls are a node's calls that stay open after their attempts have ended.
type lateCalls struct {
	mu     sync.Mutex
	open   map[*Call]*time.Timer // when its window is over
	closed bool
	group  sync.WaitGroup
}

func newLateCalls() *lateCalls { return &lateCalls{open: map[*Call]*time.Timer{}} }

// keep lets a call stay open for the time given, unless it was answered just now, there are too many, this node stops,
// or the endpoint has not even taken the body: that would have to be kept, too, up to 1 MiB for each call.
func (l *lateCalls) keep(k *Call, rest time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.open) >= maxLateCalls || !k.body.written() || !k.phase.CompareAndSwap(callWaiting, callLate) {
		return false
	}
	l.open[k] = time.AfterFunc(rest, func() { k.cut(context.DeadlineExceeded) })
	l.group.Add(1)
	return true
}

func (l *lateCalls) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// done gives a call's place to another.
func (l *lateCalls) done(k *Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[k].Stop()
	delete(l.open, k)
	l.group.Done()
}

// close cuts every call at once and keeps no more: their attempts are recorded, and nobody waits for them.
func (l *lateCalls) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for k := range l.open {
		k.cut(ErrInterrupted)
	}
}

// wait returns when all are done, after close: what was answered already is still written down.
func (l *lateCalls) wait() { l.group.Wait() }
