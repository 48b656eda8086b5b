package endpoint

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxLateCalls bounds the calls of one node that stay open past their ack timeout. Under ga-2021 a call that hangs
	// stays open for 150 s more: 1,000 workers would leave 5,000 sockets. A call costs a socket, a goroutine and 24 KB
	// (measured, without TLS). Calls beyond the bound are cut at their ack timeout.
	maxLateCalls = 256
	// lateReadTimeout bounds the reading of a late response's body: its status decides, and the retry may begin meanwhile.
	lateReadTimeout = time.Second
)

// The states of a call. Either the response or the ack timeout ends the first.
const (
	callWaiting   int32 = iota
	callResponded       // the status arrived in time, or the call failed
	callLate            // the attempt has ended as timed out, and the call stays open
)

// Call is one request in progress. It may outlive its attempt.
type Call struct {
	*Request
	header http.Header
	token  string
	watch  *stopwatch
	wrote  func(httptrace.WroteRequestInfo) // called when the request is written
	cut    context.CancelCauseFunc
	state  atomic.Int32

	concluding sync.Mutex // held while the attempt is recorded as timed out
	repeated   bool       // the attempt is repeated: a late response has no effect
}

func newCall(r *Request, token string) *Call {
	k := &Call{Request: r, header: r.Header, token: token, watch: &stopwatch{started: time.Now()}}
	if token != "" {
		k.header = r.Header.Clone()
		k.header.Set("Authorization", "Bearer "+token)
	}
	return k
}

func (k *Call) elapsed() time.Duration { return time.Since(k.watch.started) }

// inTime ends the wait for the ack timeout, unless the attempt has ended.
func (k *Call) inTime() bool {
	return k.state.CompareAndSwap(callWaiting, callResponded) || k.state.Load() == callResponded
}

// responded notes that the status has arrived. It bounds the reading of a late response's body until done is called.
func (k *Call) responded() (done func()) {
	if k.inTime() {
		return func() {}
	}
	timer := time.AfterFunc(lateReadTimeout, func() { k.cut(context.DeadlineExceeded) })
	return func() { timer.Stop() }
}

// lateCalls are a node's calls that stay open after their attempts have ended.
type lateCalls struct {
	mu     sync.Mutex
	open   map[*Call]*time.Timer // fires at the end of its window
	closed bool
	group  sync.WaitGroup
}

// keep lets a call stay open for the rest of its window, unless its response has just arrived, there are too many, this
// node stops, or its body is not written: the body would have to stay in memory, too, up to 1 MiB for each call.
func (l *lateCalls) keep(k *Call, rest time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rest <= 0 || l.closed || len(l.open) >= maxLateCalls || k.Body.bytes() != nil || // not all is written
		!k.state.CompareAndSwap(callWaiting, callLate) {
		return false
	}
	l.open[k] = time.AfterFunc(rest, func() { k.cut(context.DeadlineExceeded) })
	l.group.Add(1)
	return true
}

// OpenCalls is the number of calls that stay open past their ack timeout.
func (l *lateCalls) OpenCalls() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// done removes a call that was kept.
func (l *lateCalls) done(k *Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[k].Stop()
	delete(l.open, k)
	l.group.Done()
}

// CloseLate cuts the calls that stay open past their ack timeout, and keeps no more: their attempts are recorded.
func (l *lateCalls) CloseLate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for k := range l.open {
		k.cut(ErrInterrupted)
	}
}

// WaitLate returns when the late responses that had arrived before CloseLate have been recorded.
func (l *lateCalls) WaitLate() { l.group.Wait() }
