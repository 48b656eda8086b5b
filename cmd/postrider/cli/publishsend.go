package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"postrider/bench"
	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// What a request may have, as the server says.
const (
	maxBatchEvents = 5000
	maxBatchBytes  = 1 << 20
)

// publisher sends events in requests, one after the other: they are stored in their order.
type publisher struct {
	client    *rest.Client
	target    *publishTarget
	batch     int
	rate      float64 // events a second; 0 for as fast as it goes
	retryFor  time.Duration
	keepGoing bool
	run       string // tells this run's idempotency keys from another's
	all       int    // how many there will be; 0 where nobody knows

	pending  []byte // an event that was read and did not fit
	tally    tally
	progress terminal.ProgressLine
}

func newRunID() string { return uuid.NewString() }

// tally counts.
type tally struct {
	began                                     time.Time
	sent, accepted, failed, requests, retries int
	took                                      []time.Duration // of each accepted request, with its retries
}

// publish sends everything. Its error names the first events that were not accepted.
func (p *publisher) publish(ctx context.Context, events eventSource) error {
	p.tally.began = time.Now()
	defer p.progress.End()
	var first error
	for {
		due, err := p.due(ctx)
		if err != nil {
			return errors.Join(first, err)
		}
		body, n, end := p.gather(events, due)
		if n > 0 {
			if err := p.sendBatch(ctx, body, n); err != nil {
				first = firstOf(first, err)
				if fatal(err) || !p.keepGoing {
					return first
				}
			}
		}
		switch {
		case errors.Is(end, io.EOF):
			return first
		case end != nil:
			return errors.Join(first, end)
		}
	}
}

func firstOf(first, next error) error {
	if first != nil {
		return first
	}
	return next
}

// fatal are refusals that every further request would meet too.
func fatal(err error) bool {
	return rest.IsStatus(err, http.StatusUnauthorized) || rest.IsStatus(err, http.StatusForbidden) ||
		rest.IsStatus(err, http.StatusNotFound) || errors.Is(err, context.Canceled) || retryable(err)
}

// due waits until at least one event may be sent and says how many may.
func (p *publisher) due(ctx context.Context) (int, error) {
	if p.rate == 0 {
		return p.batch, ctx.Err()
	}
	allowed := int(time.Since(p.tally.began).Seconds()*p.rate) + 1 - p.tally.sent
	if allowed < 1 {
		next := p.tally.began.Add(time.Duration(float64(p.tally.sent) / p.rate * float64(time.Second)))
		if err := pause(ctx, max(time.Until(next), time.Millisecond)); err != nil {
			return 0, err
		}
		allowed = 1
	}
	return min(allowed, p.batch), ctx.Err()
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// gather makes an array of at most this many events, and of at most 1 MiB unless one event alone is larger: that is for
// the server to refuse. end is io.EOF after the last one, or why no more can be read.
func (p *publisher) gather(events eventSource, most int) (body []byte, n int, end error) {
	body = []byte{'['}
	for n < most {
		e := p.pending
		if p.pending = nil; e == nil {
			if e, end = events.next(); end != nil {
				break
			}
		}
		if n > 0 && len(body)+len(e)+2 > maxBatchBytes {
			p.pending = e
			break
		}
		if n > 0 {
			body = append(body, ',')
		}
		body = append(body, e...)
		n++
	}
	return append(body, ']'), n, end
}

// sendBatch sends one request until it is accepted, refused, or has been tried for long enough.
func (p *publisher) sendBatch(ctx context.Context, body []byte, n int) error {
	first := p.tally.sent + 1
	p.tally.sent += n
	p.tally.requests++
	began := time.Now()
	header, credential := p.target.credential(p.client)
	headers := []string{
		header, credential, "Content-Type", p.mediaType(body), "Idempotency-Key",
		fmt.Sprintf("postrider-cli/%s/%d", p.run, p.tally.requests),
	}
	for tries := 0; ; tries++ {
		err, after := p.try(ctx, body, headers)
		if err == nil {
			p.tally.accepted += n
			p.tally.took = append(p.tally.took, time.Since(began))
			p.show()
			return nil
		}
		wait := max(after, backoff(tries))
		if !retryable(err) || time.Since(began)+wait > p.retryFor {
			p.tally.failed += n
			return &refusedEventsError{first, first + n - 1, err}
		}
		p.tally.retries++
		p.show()
		if err := pause(ctx, wait); err != nil {
			p.tally.failed += n
			return &refusedEventsError{first, first + n - 1, err}
		}
	}
}

// try makes one request; after is what Retry-After requests.
//
//nolint:revive,staticcheck // the error is what is asked for
func (p *publisher) try(ctx context.Context, body []byte, headers []string) (err error, after time.Duration) {
	answer, err := p.client.Send(ctx, http.MethodPost, p.target.path, body, headers...)
	if err != nil {
		return err, 0
	}
	seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
	return answer.Err(), time.Duration(seconds) * time.Second
}

// backoff doubles from a quarter of a second to 15 s.
func backoff(tries int) time.Duration {
	return min(250*time.Millisecond<<min(tries, 10), 15*time.Second)
}

// mediaType is what the topic takes. Where nobody could be asked, a CloudEvent gives itself away by its specversion.
func (p *publisher) mediaType(body []byte) string {
	if p.target.schema == "" {
		p.target.schema = "EventGridSchema"
		var events []struct{ SpecVersion string }
		if terminal.DecodeExactly(body, &events) == nil && len(events) > 0 && events[0].SpecVersion != "" {
			p.target.schema = "CloudEventSchemaV1_0"
		}
	}
	if p.target.schema == "CloudEventSchemaV1_0" {
		return "application/cloudevents-batch+json"
	}
	return "application/json"
}

func (t *tally) summary(topic string) publishSummary {
	return publishSummary{
		Topic: topic, Sent: t.sent, Accepted: t.accepted, Failed: t.failed, Requests: t.requests, Retries: t.retries,
		Seconds: roundTo(time.Since(t.began).Seconds(), 3), P50Ms: millis(bench.Percentile(t.took, 50)),
		P99Ms: millis(bench.Percentile(t.took, 99)),
	}
}

func roundTo(f float64, digits int) float64 {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
	return rounded
}

func millis(d time.Duration) float64 { return roundTo(float64(d)/float64(time.Millisecond), 1) }

// show tells how far it is.
func (p *publisher) show() {
	p.progress.Show(func() string {
		s := p.tally.summary(p.target.name)
		return fmt.Sprintf("%s%d sent, %d accepted, %d failed, %.0f/s, p50 %.1f ms, p99 %.1f ms", terminal.Bar(s.Sent, p.all),
			s.Sent, s.Accepted, s.Failed, float64(s.Accepted)/max(s.Seconds, 0.001), s.P50Ms, s.P99Ms)
	})
}
