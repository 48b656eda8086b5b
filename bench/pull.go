package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"
)

const (
	// receiveMost is the limit of events in a receive.
	receiveMost = 100
	// receiveWait is the limit of the wait of a receive, in seconds.
	receiveWait = 120
	pullTopic   = "bench"
	pullQueue   = "queue"
	// pullRequestEvents fill a request of a publisher to less than its limit.
	pullRequestEvents = 400
)

// PullOptions are the options of Pull, with the tags of their flags.
type PullOptions struct {
	Binary  string `kong:"-"` // path of the postrider program
	Command string `kong:"-"` // for the report

	Consumers  int           `help:"Consumers, each with one connection. They receive 100 events and acknowledge them." default:"8" range:"1.."`
	Events     int           `help:"Events that are published before the consumers start." default:"200000" range:"1.."`
	EventBytes int           `help:"Size of an event in bytes." default:"1024" range:"320..2000"`
	Rate       float64       `help:"Events per second while the latency is measured." default:"100" range:"0.001.."`
	Duration   time.Duration `help:"Duration of the measurement of the latency, and of that of waiting receivers." default:"15s" range:"1.."`
	Receivers  int           `help:"Receivers that wait without events." default:"1000" range:"1.."`
}

// PullReport is the result of Pull.
type PullReport struct {
	Command    string `json:"command"`
	Consumers  int    `json:"consumers"`
	EventBytes int    `json:"eventBytes"`

	// Acknowledged are events of the backlog, in AcknowledgeSeconds: from the first receive to the last acknowledgment.
	Acknowledged          int64   `json:"acknowledged"`
	AcknowledgedPerSecond float64 `json:"acknowledgedPerSecond"`
	AcknowledgeSeconds    float64 `json:"acknowledgeSeconds"`
	// CPUSecondsPer10k are of service and postgres, for 10,000 acknowledged events.
	CPUSecondsPer10k map[string]float64 `json:"cpuSecondsPer10k"`
	ReceiveMs        Latencies          `json:"receiveMs"`
	AcknowledgeMs    Latencies          `json:"acknowledgeMs"`
	// LatencyMs is from a publish to the response to a receiver that waited for it.
	LatencyMs Latencies `json:"latencyMs"`

	// Receivers waited without events. The percentages are of one CPU: without receivers, and with them.
	Receivers   int                `json:"receivers"`
	IdleCPU     map[string]float64 `json:"idleCpuPercent"`
	WaitingCPU  map[string]float64 `json:"waitingCpuPercent"`
	RSSPeakMB   float64            `json:"rssPeakMB"`
	Published   int64              `json:"published"`
	Delivered   int64              `json:"delivered"` // according to the database
	Left        int64              `json:"left"`
	Checkpoints int                `json:"checkpoints"`
	Settings    Settings           `json:"settings"`
	Machine     Machine            `json:"machine"`
}

// Err returns nil if every published event was acknowledged once.
func (r PullReport) Err() error {
	if r.Delivered != r.Published || r.Left != 0 {
		return fmt.Errorf("of %d events published, %d were acknowledged and %d are left", r.Published, r.Delivered, r.Left)
	}
	return nil
}

// String formats the report for people.
func (r PullReport) String() string {
	var p printer
	p.line("acknowledged", "%.0f events/s for %.1f s, %d consumers", r.AcknowledgedPerSecond, r.AcknowledgeSeconds,
		r.Consumers)
	p.line("10,000 events", "CPU seconds %s", cpuText(r.CPUSecondsPer10k))
	p.line("receive", "%s", r.ReceiveMs)
	p.line("acknowledge", "%s", r.AcknowledgeMs)
	p.line("latency", "%s from publish to a waiting receiver", r.LatencyMs)
	p.line("waiting", "%% of a CPU with %d receivers: %s; with none: %s", r.Receivers, cpuText(r.WaitingCPU),
		cpuText(r.IdleCPU))
	p.line("memory", "%.0f MB of the service at its peak", r.RSSPeakMB)
	p.line("left, lost", "%d, %d of %d", r.Left, r.Published-r.Delivered-r.Left, r.Published)
	p.line("PostgreSQL", "%s", r.Settings)
	p.line("machine", "%s", r.Machine)
	p.line("command", "%s", r.Command)
	return strings.TrimSuffix(p.String(), "\n")
}

// Pull measures consumers of a queue: how fast they acknowledge a backlog while nothing is published, how soon a
// waiting receiver gets an event, and what waiting receivers cost. It writes progress to log. An error means that there
// is no report.
func Pull(ctx context.Context, o PullOptions, log io.Writer) (report PullReport, err error) {
	r := &pullRun{o: o, report: PullReport{
		Command: o.Command, Consumers: o.Consumers, EventBytes: o.EventBytes, Receivers: o.Receivers,
		Machine: thisMachine(),
	}}
	err = withSystem(ctx, o.Binary, "", "pull", log, func(s *system) error {
		r.system = s
		return s.guarded(ctx, r.measure)
	})
	return r.report, err
}

// pullRun is one run of Pull.
type pullRun struct {
	*system
	o      PullOptions
	report PullReport
	key    string
	filler string

	acknowledged                atomic.Int64
	mu                          sync.Mutex // of the following
	last                        time.Time  // of an acknowledgment
	receive, acknowledge, since []time.Duration
}

func (r *pullRun) measure(ctx context.Context) (err error) {
	if r.report.Settings, err = r.readSettings(ctx); err != nil {
		return err
	}
	var created struct {
		Key1 string `json:"key1"`
	}
	if err := r.api.call(ctx, http.MethodPut, "/v1/topics/"+pullTopic, settings{"inputSchema": "CloudEventSchemaV1_0"},
		&created); err != nil {
		return err
	}
	r.key, r.topics, r.filler = created.Key1, []string{pullTopic}, text(r.o.EventBytes-len(cloudEvent(nil, 0, "")))
	if err := r.api.call(ctx, http.MethodPut, subscriptionPath(pullTopic, pullQueue),
		settings{"deliveryConfiguration": settings{"deliveryMode": "Queue"}}, nil); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{r.measureBacklog, r.measureLatency, r.measureWaiting} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	counted, err := r.countDeliveries(ctx)
	r.report.Delivered, r.report.Left, r.report.Checkpoints = counted.delivered, counted.left, r.checkpoints
	return err
}

// measureBacklog publishes a backlog, and then has consumers receive and acknowledge it, with a checkpoint in the
// middle.
func (r *pullRun) measureBacklog(ctx context.Context) error {
	r.say("publishing %d events in advance", r.o.Events)
	client, disconnect := r.client(ctx, bulkRequests)
	defer disconnect()
	requests := (r.o.Events + pullRequestEvents - 1) / pullRequestEvents
	if err := parallel(ctx, bulkRequests, requests, func(_ context.Context, i int) error {
		return r.publish(client, min(pullRequestEvents, r.o.Events-i*pullRequestEvents))
	}); err != nil {
		return err
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	r.say("acknowledging")
	resetPeak(r.service.cmd.Process.Pid)
	before, began := r.cpu(), time.Now()
	if err := r.consume(ctx, r.o.Consumers, receiveMost, func(ctx context.Context) error {
		if err := r.await(ctx, int64(r.o.Events)/2); err != nil {
			return err
		}
		return errors.Join(r.checkpoint(ctx), r.await(ctx, int64(r.o.Events)))
	}); err != nil {
		return err
	}
	p := &r.report
	p.Acknowledged = r.acknowledged.Load()
	p.AcknowledgeSeconds, p.AcknowledgedPerSecond = perSecond(p.Acknowledged, r.last.Sub(began))
	p.CPUSecondsPer10k = map[string]float64{}
	for name, seconds := range used(before, r.cpu()) {
		if name == "service" || name == "postgres" {
			p.CPUSecondsPer10k[name] = round(seconds/float64(p.Acknowledged)*10_000, 3)
		}
	}
	p.ReceiveMs, p.AcknowledgeMs = latencies(r.receive), latencies(r.acknowledge)
	p.RSSPeakMB = peakMB(r.service.cmd.Process.Pid)
	return nil
}

// measureLatency publishes single events while four receivers wait.
func (r *pullRun) measureLatency(ctx context.Context) error {
	r.say("latency, %s", r.o.Duration)
	if err := r.settle(ctx); err != nil {
		return err
	}
	r.since = nil
	err := r.consume(ctx, 4, 1, func(ctx context.Context) error {
		client, disconnect := r.client(ctx, 1)
		defer disconnect()
		began := time.Now()
		for i := range int(r.o.Rate * r.o.Duration.Seconds()) {
			if !waitUntil(ctx, began.Add(time.Duration(float64(i)/r.o.Rate*float64(time.Second)))) {
				return ctx.Err()
			}
			if err := r.publish(client, 1); err != nil {
				return err
			}
		}
		return r.await(ctx, r.report.Published)
	})
	r.report.LatencyMs = latencies(r.since)
	return err
}

// measureWaiting measures the CPU time without receivers, and with many that get no event.
func (r *pullRun) measureWaiting(ctx context.Context) error {
	r.say("%d receivers wait, %s", r.o.Receivers, r.o.Duration)
	idle := func(ctx context.Context) (map[string]float64, error) {
		if !pause(ctx, 2*time.Second) { // until connections are opened or closed
			return nil, ctx.Err()
		}
		before, began := r.cpu(), time.Now()
		if !pause(ctx, r.o.Duration) {
			return nil, ctx.Err()
		}
		percent := map[string]float64{}
		for name, seconds := range used(before, r.cpu()) {
			if name == "service" || name == "postgres" {
				percent[name] = round(seconds/time.Since(began).Seconds()*100, 1)
			}
		}
		return percent, nil
	}
	var err error
	if r.report.IdleCPU, err = idle(ctx); err != nil {
		return err
	}
	return r.consume(ctx, r.o.Receivers, 1, func(ctx context.Context) (err error) {
		r.report.WaitingCPU, err = idle(ctx)
		return err
	})
}

// consume has consumers receive up to most events at once and acknowledge them, until do returns.
func (r *pullRun) consume(ctx context.Context, consumers, most int, do func(context.Context) error) error {
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	group, running := errgroup.WithContext(stopping)
	client, disconnect := r.client(running, consumers)
	defer disconnect()
	for range consumers {
		group.Go(func() error {
			c := &pullConsumer{pullRun: r, client: client}
			for {
				if err := c.receiveAndAcknowledge(most); running.Err() != nil {
					return nil
				} else if err != nil {
					return err
				}
			}
		})
	}
	group.Go(func() error {
		defer stop()
		return do(running)
	})
	return errors.Join(group.Wait(), ctx.Err())
}

// await waits until so many events are acknowledged, or nothing is for stallLimit.
func (r *pullRun) await(ctx context.Context, events int64) error {
	changed, seen := time.Now(), int64(-1)
	for {
		n := r.acknowledged.Load()
		if n != seen {
			changed, seen = time.Now(), n
		}
		switch {
		case n >= events:
			return nil
		case time.Since(changed) > stallLimit:
			return fmt.Errorf("%d of %d events are acknowledged, none within %s", n, events, stallLimit)
		case !pause(ctx, sinkPoll):
			return ctx.Err()
		}
	}
}

// pullConsumer is one connection of a consumer.
type pullConsumer struct {
	*pullRun
	client   *fasthttp.HostClient
	response fasthttp.Response
	body     []byte
}

func (c *pullConsumer) receiveAndAcknowledge(most int) error {
	began := time.Now()
	if err := c.post(c.client, &c.response, c.operation("receive")+
		fmt.Sprintf("&maxEvents=%d&maxWaitTime=%d", most, receiveWait), "", nil); err != nil {
		return err
	}
	received := time.Now()
	tokens, since := 0, c.sentAt(received)
	c.body = append(c.body[:0], `{"lockTokens":[`...)
	for rest := c.response.Body(); ; {
		const name = `"lockToken":`
		_, after, found := bytes.Cut(rest, []byte(name))
		if !found {
			break
		}
		token, more, _ := bytes.Cut(after[1:], []byte(`"`))
		c.body = append(append(append(c.body, '"'), token...), `",`...)
		rest, tokens = more, tokens+1
	}
	if tokens == 0 {
		return nil
	}
	c.body = append(c.body[:len(c.body)-1], `]}`...)
	if err := c.post(c.client, &c.response, c.operation("acknowledge"), "application/json", c.body); err != nil {
		return err
	}
	if !bytes.Contains(c.response.Body(), []byte(`"failedLockTokens":[]`)) {
		return fmt.Errorf("acknowledge: %.500s", c.response.Body())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.receive, c.acknowledge = append(c.receive, received.Sub(began)), append(c.acknowledge, time.Since(received))
	c.since = append(c.since, since)
	c.last = time.Now()
	c.acknowledged.Add(int64(tokens))
	return nil
}

// sentAt returns how long ago the first event of the response was published.
func (c *pullConsumer) sentAt(now time.Time) time.Duration {
	_, after, _ := bytes.Cut(c.response.Body(), []byte(`"sentAt":`))
	digits, _, _ := bytes.Cut(after, []byte(","))
	nanoseconds, _ := strconv.ParseInt(string(digits), 10, 64)
	return now.Sub(time.Unix(0, nanoseconds))
}

func (r *pullRun) operation(name string) string {
	return "/topics/" + pullTopic + "/eventsubscriptions/" + pullQueue + ":" + name + "?api-version=2024-06-01"
}

// client has longer timeouts than a receive can wait.
func (r *pullRun) client(ctx context.Context, connections int) (*fasthttp.HostClient, func()) {
	client, disconnect := newClient(ctx, target{url: r.api.base}, connections)
	client.ReadTimeout = receiveWait*time.Second + responseTimeout
	return client, disconnect
}

// post requires a response 200.
func (r *pullRun) post(
	client *fasthttp.HostClient, response *fasthttp.Response, path, media string, body []byte,
) error {
	request := fasthttp.AcquireRequest()
	defer fasthttp.ReleaseRequest(request)
	request.SetRequestURI(r.api.base + path)
	request.Header.SetMethod(fasthttp.MethodPost)
	request.Header.Set("aeg-sas-key", r.key)
	if media != "" {
		request.Header.SetContentType(media)
	}
	request.SetBodyRaw(body)
	if err := client.Do(request, response); err != nil {
		return fmt.Errorf("POST %s: %w", path, err)
	}
	if status := response.StatusCode(); status != fasthttp.StatusOK {
		return fmt.Errorf("POST %s: %w: %d %.500s", path, errRejected, status, response.Body())
	}
	return nil
}

// publish publishes n events in one request.
func (r *pullRun) publish(client *fasthttp.HostClient, n int) error {
	number := atomic.AddInt64(&r.report.Published, int64(n))
	body := []byte{'['}
	for i := range int64(n) {
		body = append(cloudEvent(body, number-i, r.filler), ',')
	}
	body[len(body)-1] = ']'
	return r.post(client, &fasthttp.Response{}, "/topics/"+pullTopic+"/api/events",
		"application/cloudevents-batch+json", body)
}

// cloudEvent appends an event with the current time. Its size is the same for every number.
func cloudEvent(body []byte, number int64, filler string) []byte {
	body = append(strconv.AppendInt(append(body, `{"specversion":"1.0","id":"`...), firstID+number, 10),
		`","source":"/bench","type":"Postrider.Bench","data":{"sentAt":`...)
	body = append(strconv.AppendInt(body, time.Now().UnixNano(), 10), `,"filler":"`...)
	return append(append(body, filler...), `"}}`...)
}
