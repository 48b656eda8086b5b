package jobs

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"postrider/policy"
	"postrider/store"
)

const (
	// maxLateCalls bounds the calls of one node that stay open past their ack timeout. Under ga-2021 a worker gives up a
	// hanging call every 30 s and each stays open for 150 s more: 1,000 workers would leave 5,000 sockets. A call costs one,
	// and four goroutines, 33 KB with its buffers (measured, without TLS): 256 are 8 MB. What is beyond the bound is cut
	// at its ack timeout, as under a policy without a window.
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

// call is one request on its way. It may outlive its attempt.
type call struct {
	url    string
	header http.Header
	body   *payload
	by     *policy.Connection // nil = nothing of its own
	watch  *stopwatch
	phase  atomic.Int32

	// Of calls that may stay open only.
	cut context.CancelCauseFunc
	met chan reply // gets one
}

// reply is what exchange returned.
type reply struct {
	answer answer
	err    error
}

func newCall(url string, header http.Header, body *payload) *call {
	return &call{url: url, header: header, body: body, watch: &stopwatch{started: time.Now()}}
}

func (k *call) elapsed() time.Duration { return time.Since(k.watch.started) }

// answered is told when the status has arrived. It bounds the reading of a late answer's body, until done is called.
func (k *call) answered() (done func()) {
	if k.phase.CompareAndSwap(callWaiting, callAnswered) {
		return func() {}
	}
	patience := time.AfterFunc(lateReadPatience, func() { k.cut(context.DeadlineExceeded) })
	return func() { patience.Stop() }
}

// postOpen is post under a policy that takes late answers: at the ack timeout the attempt has timed out, and the call
// stays open until the window, counted from the send, is over. Then late is that call, and has to be given to follow.
func (c *endpointClient) postOpen(k *call, ackTimeout, window time.Duration) (met answer, late *call, err error) {
	ctx, cut := context.WithCancelCause(c.requests)
	k.cut, k.met = cut, make(chan reply, 1)
	go func() {
		defer cut(nil)
		met, err := c.exchange(ctx, k)
		k.met <- reply{met, err}
	}()
	ack := time.NewTimer(ackTimeout)
	defer ack.Stop()
	select {
	case r := <-k.met:
		return r.answer, nil, r.err
	case <-ack.C:
	}
	if c.late.keep(k, window-ackTimeout) {
		met = answer{result: policy.Result{Err: policy.ErrorTimeout}, timings: k.watch.read(), duration: k.elapsed()}
		met.cause = context.DeadlineExceeded
		met.timedOut(ackTimeout)
		return met, k, nil
	}
	cut(context.DeadlineExceeded) // no answer yet, or one whose body goes on
	r := <-k.met
	r.answer.timedOut(ackTimeout)
	return r.answer, nil, r.err
}

// lateCalls are a node's calls that stay open after their attempts have ended.
type lateCalls struct {
	mu     sync.Mutex
	open   map[*call]*time.Timer // when its window is over
	closed bool
	group  sync.WaitGroup
}

func newLateCalls() *lateCalls { return &lateCalls{open: map[*call]*time.Timer{}} }

// keep lets a call stay open for the time given, unless it was answered just now, there are too many, this node stops, or
// the endpoint has not even taken the body: that would have to be kept, too, up to 1 MiB for each call.
func (l *lateCalls) keep(k *call, rest time.Duration) bool {
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
func (l *lateCalls) done(k *call) {
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
		k.cut(errInterrupted)
	}
}

// wait returns when all are done, after close: what was answered already is still written down.
func (l *lateCalls) wait() { l.group.Wait() }

// follow waits, beside the worker, for the answer of a call that stayed open. It is looked at only after the attempt was
// recorded as timed out: before that there is no retry to cancel.
func (a *attempt) follow(k *call, recorded error, conclude func(met answer, verdict policy.Verdict, why string)) {
	if recorded != nil {
		k.cut(recorded) // the attempt is made again
	}
	go func() {
		defer a.engine.endpoint.late.done(k)
		r := <-k.met
		if verdict, why, ok := lateVerdict(a.policy, a.sub.EndpointKind, r.answer.result); ok && r.err == nil && recorded == nil {
			conclude(r.answer, verdict, why)
		}
	}()
}

// concludeLate writes down what a call met after its ack timeout, of a delivery or of a batch.
func (a *attempt) concludeLate(result store.Result, met answer, why string) {
	a.engine.gate.Learn(a.sub.ID, result.Outcome, met.result)
	switch ended, err := a.engine.store.RecordLate(context.Background(), result, why); {
	case err != nil:
		a.engine.log.Warn("a late answer could not be recorded; the retry is made", "delivery", result.DeliveryID, "batch", result.BatchID, "result", met.result.String(), "error", err)
	case ended:
		a.report(&result, met, a.work.Now(), true)
	}
}

// lateVerdict decides about what a call met after its ack timeout. A success asks for the queued retry to be canceled;
// an answer that the policy calls a failure is only noted: the retry on the schedule of the timeout is the better chance,
// and an answer that is never retried must not end a delivery whose retry is already promised. Without an answer (the
// connection broke, the window is over) there is nothing to tell.
func lateVerdict(p *policy.Policy, kind policy.EndpointKind, met policy.Result) (verdict policy.Verdict, why string, ok bool) {
	const late = "answered after the ack timeout: "
	switch {
	case met.Err != policy.ErrorNone || met.Status == 0:
		return policy.Verdict{}, "", false
	case p.Cell(kind, met).Action == policy.ActionSuccess:
		return policy.Verdict{Action: policy.Delivered}, late + met.String() + ": success", true
	default:
		return policy.Verdict{Action: store.Note}, late + met.String(), true
	}
}
