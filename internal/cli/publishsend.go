package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
)

// publisher sends one request after the other, so that events are stored in order.
type publisher struct {
	*PublishCmd
	client   *rest.Client
	path     string
	schema   string // "" if unknown: taken from the first event
	run      string // distinguishes the idempotency keys of this run
	progress *terminal.ProgressLine
	idMember string // of an event: the path of its id; "": the server gives the ids

	began time.Time
	took  []time.Duration // of each accepted request, with its retries
	done  publishSummary
	ids   []string // of the first accepted events
}

// publishSummary is the result of a publish.
type publishSummary struct {
	Topic    string  `json:"topic"`
	Sent     int     `json:"sent"`
	Accepted int     `json:"accepted"`
	Failed   int     `json:"failed"`
	Requests int     `json:"requests"`
	Retries  int     `json:"retries"`
	Seconds  float64 `json:"seconds"`
	P50Ms    float64 `json:"p50Ms"`
	P99Ms    float64 `json:"p99Ms"`
}

// summary is the result so far.
func (p *publisher) summary() publishSummary {
	s := p.done
	s.Topic, s.Seconds = p.Topic, math.Round(time.Since(p.began).Seconds()*1000)/1000
	s.P50Ms, s.P99Ms = millis(terminal.Percentile(p.took, 50)), millis(terminal.Percentile(p.took, 99))
	return s
}

// String is the summary in a sentence.
func (s publishSummary) String() string {
	text := fmt.Sprintf("%s to topic %s in %.1f s: %d accepted, %d failed.", terminal.Plural(s.Sent, "event"), s.Topic,
		s.Seconds, s.Accepted, s.Failed)
	if s.Accepted > 0 {
		text += fmt.Sprintf(" A request took %.1f ms (median), %.1f ms (99th percentile).", s.P50Ms, s.P99Ms)
	}
	if s.Retries > 0 {
		text += fmt.Sprintf(" Repeated requests: %d.", s.Retries)
	}
	return text
}

// publish sends all events. The error names the first events that were not accepted.
func (p *publisher) publish(ctx context.Context, events iter.Seq2[[]byte, error]) (first error) {
	p.began = time.Now()
	defer p.progress.End()
	most := p.Batch
	if p.Rate > 0 { // at least ten requests per second, for a steady rate
		most = min(most, max(1, int(p.Rate/10)))
	}
	for request, err := range requests(events, most) {
		if err != nil {
			return errors.Join(first, err)
		}
		if p.Rate > 0 {
			due := p.began.Add(time.Duration(float64(p.done.Sent) / p.Rate * float64(time.Second)))
			if err := pause(ctx, time.Until(due)); err != nil {
				return errors.Join(first, err)
			}
		}
		if err := p.send(ctx, request); err != nil {
			first = cmp.Or(first, err)
			if fatal(err) || !p.KeepGoing {
				return first
			}
		}
	}
	return first
}

// fatal reports whether all further requests would fail, too.
func fatal(err error) bool {
	return rest.IsStatus(err, http.StatusUnauthorized) || rest.IsStatus(err, http.StatusForbidden) ||
		rest.IsStatus(err, http.StatusNotFound) || errors.Is(err, context.Canceled) || retryable(err)
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// maxRequestBytes is the server's limit.
const maxRequestBytes = 1 << 20

// eventArray is a JSON array of n events.
type eventArray struct {
	body []byte
	n    int
}

// requests groups events into arrays of up to most events and 1 MiB. A larger event gets its own array, which the
// server rejects.
func requests(events iter.Seq2[[]byte, error], most int) iter.Seq2[eventArray, error] {
	return func(yield func(eventArray, error) bool) {
		var a eventArray
		flush := func() bool {
			full := eventArray{append(a.body, ']'), a.n}
			a = eventArray{}
			return full.n == 0 || yield(full, nil)
		}
		for event, err := range events {
			if err != nil {
				if flush() {
					yield(eventArray{}, err)
				}
				return
			}
			if (a.n == most || len(a.body)+len(event)+2 > maxRequestBytes) && !flush() {
				return
			}
			a.body = append(append(a.body, terminal.Either(a.n == 0, byte('['), ',')), event...)
			a.n++
		}
		flush()
	}
}

// send repeats a request until it is accepted or rejected, or --retry-for has passed.
func (p *publisher) send(ctx context.Context, a eventArray) error {
	first := p.done.Sent + 1
	p.done.Sent += a.n
	p.done.Requests++
	began := time.Now()
	headers := []string{
		"Content-Type", p.mediaType(a.body),
		"Idempotency-Key", fmt.Sprintf("postrider-cli/%s/%d", p.run, p.done.Requests),
		"Aeg-Sas-Key", p.Key,
	}
	if p.Key == "" {
		headers = append(headers[:4], "Authorization", "Bearer "+p.client.Key)
	}
	for tries := 0; ; tries++ {
		response, err := p.client.Send(ctx, http.MethodPost, p.path, a.body, headers...)
		after := 0
		if err == nil {
			after, _ = strconv.Atoi(response.Header.Get("Retry-After"))
			err = response.Err()
		}
		if err == nil {
			p.done.Accepted += a.n
			p.took = append(p.took, time.Since(began))
			p.keepIDs(a.body)
			p.show()
			return nil
		}
		wait := min(250*time.Millisecond<<min(tries, 10), 15*time.Second)
		wait = max(wait, time.Duration(after)*time.Second)
		retries := retryable(err) && time.Since(began)+wait <= p.RetryFor
		if retries {
			p.done.Retries++
			p.show()
			err = pause(ctx, wait)
		}
		if err != nil {
			p.done.Failed += a.n
			return &rejectedEventsError{first, first + a.n - 1, err}
		}
	}
}

// shownIDs is the number of events whose ids are printed.
const shownIDs = 10

// keepIDs adds the ids of accepted events to those that are printed.
func (p *publisher) keepIDs(body []byte) {
	var events []rest.Object
	if p.idMember != "" && len(p.ids) < shownIDs && terminal.DecodeExactly(body, &events) == nil {
		for _, event := range events[:min(len(events), shownIDs-len(p.ids))] {
			if id, ok := rest.ValueAt(event, p.idMember).(string); ok && id != "" {
				p.ids = append(p.ids, id)
			}
		}
	}
}

// printIDs prints the ids of accepted events with the commands that show their deliveries.
func (p *publisher) printIDs(w io.Writer) {
	for _, id := range p.ids {
		word := terminal.OneLine(id)
		if !plainWord.MatchString(id) {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		fmt.Fprintf(w, "Event %s: postrider delivery list --event-id %s\n", terminal.OneLine(id), word)
	}
	if more := p.done.Accepted - len(p.ids); more > 0 && len(p.ids) > 0 {
		fmt.Fprintf(w, "… and %s\n", terminal.Plural(more, "more event"))
	}
}

// plainWord matches ids that a shell reads as one word.
var plainWord = regexp.MustCompile(`^[\w.:/@%+=][\w.:/@%+=-]*$`)

// mediaType is that of the topic's schema. If the schema is unknown, specversion identifies a CloudEvent.
func (p *publisher) mediaType(body []byte) string {
	if p.schema == "" {
		p.schema = "EventGridSchema"
		var events []struct{ SpecVersion string }
		if terminal.DecodeExactly(body, &events) == nil && len(events) > 0 && events[0].SpecVersion != "" {
			p.schema = "CloudEventSchemaV1_0"
		}
	}
	if p.schema == "CloudEventSchemaV1_0" {
		return "application/cloudevents-batch+json"
	}
	return "application/json"
}

func millis(d time.Duration) float64 { return math.Round(float64(d)/1e5) / 10 }

// show shows the progress.
func (p *publisher) show() {
	p.progress.Show(func() string {
		s := p.summary()
		return fmt.Sprintf("%s%d sent, %d accepted, %d failed, %.0f/s, p50 %.1f ms, p99 %.1f ms",
			terminal.Bar(s.Sent, terminal.Either(p.creates(), p.Count, 0)), s.Sent, s.Accepted, s.Failed,
			float64(s.Accepted)/max(s.Seconds, 0.001), s.P50Ms, s.P99Ms)
	})
}

// rejectedEventsError reports which events were not accepted.
type rejectedEventsError struct {
	first, last int
	cause       error
}

// Error names events by their position in the input, from 1. Without a response that rejects them, they may have been
// stored.
func (e *rejectedEventsError) Error() string {
	which := fmt.Sprintf("events %d to %d were", e.first, e.last)
	if e.first == e.last {
		which = fmt.Sprintf("event %d was", e.first)
	}
	if status := rest.ErrorOf(e.cause).Status; status == 0 || status >= http.StatusInternalServerError {
		return fmt.Sprintf("it is unknown whether %s accepted: %v", which, e.cause)
	}
	why := positionInRequest.ReplaceAllStringFunc(e.cause.Error(), func(position string) string {
		n, _ := strconv.Atoi(positionInRequest.FindStringSubmatch(position)[1])
		return fmt.Sprintf("event %d", e.first+n)
	})
	return fmt.Sprintf("%s not accepted: %s", which, why)
}

var positionInRequest = regexp.MustCompile(`\bevents\[(\d+)\]`)

// Unwrap returns the response of the API, or the error of a request without one.
func (e *rejectedEventsError) Unwrap() error { return e.cause }

// retryable reports whether the same request may be sent again after this response, or after none.
func retryable(err error) bool {
	switch rest.ErrorOf(err).Status {
	case 0:
		return !errors.Is(err, context.Canceled)
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}
