package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"postrider/internal/terminal"
)

// pullRequestEvents fill a request of a publisher to less than its limit.
const pullRequestEvents = 400

type pullCmd struct {
	terminal.OutputFlag
	Consumers  int           `help:"Consumers, each with one connection. They receive 100 events and acknowledge them." default:"8" range:"1.."`
	Events     int           `help:"Events that are published before the consumers start." default:"200000" range:"1.."`
	EventBytes int           `help:"Size of an event in bytes." default:"1024" range:"320..2000"`
	Rate       float64       `help:"Events per second while the latency is measured." default:"100" range:"0.001.."`
	Duration   time.Duration `help:"Duration of the measurement of the latency, and of that of waiting receivers." default:"15s" range:"1.."`
	Receivers  int           `help:"Receivers that wait without events." default:"1000" range:"1.."`
}

type pullReport struct {
	Consumers  int `json:"consumers"`
	EventBytes int `json:"eventBytes"`
	// Acknowledged are events of the backlog, in AcknowledgeSeconds: from the first receive to the last acknowledgment.
	Acknowledged          int64   `json:"acknowledged"`
	AcknowledgedPerSecond float64 `json:"acknowledgedPerSecond"`
	AcknowledgeSeconds    float64 `json:"acknowledgeSeconds"`
	// CPUSecondsPer10k are of service and postgres, for 10,000 acknowledged events.
	CPUSecondsPer10k map[string]float64 `json:"cpuSecondsPer10k"`
	ReceiveMs        map[string]float64 `json:"receiveMs"`
	AcknowledgeMs    map[string]float64 `json:"acknowledgeMs"`
	// LatencyMs is from a publish to the response to a receiver that waited for it.
	LatencyMs map[string]float64 `json:"latencyMs"`
	// Receivers waited without events. The percentages are of one CPU: without receivers, and with them.
	Receivers   int                `json:"receivers"`
	IdleCPU     map[string]float64 `json:"idleCpuPercent"`
	WaitingCPU  map[string]float64 `json:"waitingCpuPercent"`
	RSSPeakMB   float64            `json:"rssPeakMB"`
	Published   int64              `json:"published"`
	Delivered   int64              `json:"delivered"` // according to the database
	Left        int64              `json:"left"`
	Checkpoints int                `json:"checkpoints"`
	common
}

// Run measures how fast consumers acknowledge a backlog while nothing is published, how soon a waiting receiver gets an
// event, and what waiting receivers cost.
func (c *pullCmd) Run(ctx context.Context, p *program) error {
	r := &pullRun{pullCmd: *c}
	o := &r.report
	o.Consumers, o.EventBytes, o.Receivers = c.Consumers, c.EventBytes, c.Receivers
	if err := withSystem(ctx, p, "", "pull", &o.common, func(s *system) {
		r.system, s.topics = s, []string{"bench" + s.suffix}
		r.target = s.createTopic(s.topics[0], settings{"inputSchema": "CloudEventSchemaV1_0"})
		s.call(http.MethodPut, "/v1/topics/"+s.topics[0]+"/subscriptions/queue",
			settings{"deliveryConfiguration": settings{"deliveryMode": "Queue"}}, nil)
		r.target.cloud = true
		r.measureBacklog()
		r.measureLatency()
		r.measureWaiting()
		counted := s.count()
		o.Delivered, o.Left, o.Checkpoints = counted.delivered, counted.left, s.checkpoints
	}); err != nil {
		return err
	}
	var lost error
	if o.Delivered != o.Published || o.Left != 0 {
		lost = fmt.Errorf("of %d events published, %d were acknowledged and %d are left", o.Published, o.Delivered, o.Left)
	}
	return finish(c.OutputFlag, o, lost)
}

// pullRun is one run of pull.
type pullRun struct {
	*system
	pullCmd
	report pullReport
	target target

	acknowledged                atomic.Int64
	mu                          sync.Mutex // of the following
	last                        time.Time  // of an acknowledgment
	receive, acknowledge, since []time.Duration
}

// publish runs a load and requires that everything is accepted.
func (r *pullRun) publish(l *load) {
	l.targets, l.clients, l.eventBytes = []target{r.target}, bulkRequests, r.EventBytes
	loaded := l.publish(r.system)
	r.report.Published += loaded.published
	r.check(loaded.firstError)
}

// measureBacklog publishes a backlog, and then has consumers receive and acknowledge it, with a checkpoint in the
// middle.
func (r *pullRun) measureBacklog() {
	r.say("publishing %d events in advance", r.Events)
	r.publish(&load{events: int64(r.Events - r.Events%pullRequestEvents), eventsPerRequest: pullRequestEvents})
	r.publish(&load{events: int64(r.Events % pullRequestEvents), eventsPerRequest: 1})
	r.settle()
	r.say("acknowledging")
	r.resetPeaks()
	before, began := r.cpu(), time.Now()
	r.consume(r.Consumers, 100, func() {
		r.awaitAcknowledged(int64(r.Events) / 2)
		r.checkpoint()
		r.awaitAcknowledged(int64(r.Events))
	})
	p := &r.report
	p.Acknowledged = r.acknowledged.Load()
	p.AcknowledgeSeconds, p.AcknowledgedPerSecond = perSecond(p.Acknowledged, r.last.Sub(began))
	p.CPUSecondsPer10k = perUnit(used(before, r.cpu()), float64(p.Acknowledged)/10_000, 3)
	p.ReceiveMs, p.AcknowledgeMs = latencies(r.receive), latencies(r.acknowledge)
	p.RSSPeakMB = r.peakMB()
}

// measureLatency publishes single events while four receivers wait.
func (r *pullRun) measureLatency() {
	r.say("latency, %s", r.Duration)
	r.settle()
	r.since = nil
	r.consume(4, 1, func() {
		r.publish(&load{rate: r.Rate, duration: r.Duration, eventsPerRequest: 1})
		r.awaitAcknowledged(r.report.Published)
	})
	r.report.LatencyMs = latencies(r.since)
}

// measureWaiting measures the CPU time without receivers, and with many that get no event.
func (r *pullRun) measureWaiting() {
	r.say("%d receivers wait, %s", r.Receivers, r.Duration)
	idle := func() map[string]float64 {
		pause(r.ctx, 2*time.Second) // until connections are opened or closed
		before, began := r.cpu(), time.Now()
		pause(r.ctx, r.Duration)
		return perUnit(used(before, r.cpu()), time.Since(began).Seconds()/100, 1)
	}
	r.report.IdleCPU = idle()
	r.consume(r.Receivers, 1, func() { r.report.WaitingCPU = idle() })
}

// consume has consumers receive up to most events at once and acknowledge them, until do returns.
func (r *pullRun) consume(consumers, most int, do func()) {
	ctx, stop := context.WithCancel(r.ctx)
	r.client.Transport = &http.Transport{MaxIdleConnsPerHost: consumers}
	var group sync.WaitGroup
	for range consumers {
		group.Go(func() {
			for ctx.Err() == nil {
				if err := r.receiveAndAcknowledge(ctx, most); err != nil && ctx.Err() == nil {
					r.fail(err)
				}
			}
		})
	}
	do()
	stop()
	group.Wait()
	r.client.CloseIdleConnections()
}

func (r *pullRun) awaitAcknowledged(events int64) {
	r.await(r.acknowledged.Load, func() bool { return r.acknowledged.Load() >= events })
}

func (r *pullRun) receiveAndAcknowledge(ctx context.Context, most int) error {
	operation := func(name, query, body string) (string, error) {
		text, err := r.send(ctx, http.MethodPost, "/topics/"+r.topics[0]+"/eventsubscriptions/queue:"+name+
			"?api-version=2024-06-01"+query, "aeg-sas-key", r.target.key, []byte(body))
		return string(text), err
	}
	began := time.Now()
	text, err := operation("receive", fmt.Sprintf("&maxEvents=%d&maxWaitTime=120", most), "")
	if err != nil {
		return err
	}
	received := time.Now()
	since := received.Sub(time.Unix(0, sentAt([]byte(text))))
	var tokens []string
	for _, event := range strings.Split(text, `"lockToken":`)[1:] {
		token, _, _ := strings.Cut(event[1:], `"`)
		tokens = append(tokens, `"`+token+`"`)
	}
	if tokens == nil {
		return nil
	}
	text, err = operation("acknowledge", "", `{"lockTokens":[`+strings.Join(tokens, ",")+`]}`)
	if err != nil {
		return err
	}
	if !strings.Contains(text, `"failedLockTokens":[]`) {
		return fmt.Errorf("acknowledge: %.500s", text)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = time.Now()
	r.receive, r.acknowledge = append(r.receive, received.Sub(began)), append(r.acknowledge, r.last.Sub(received))
	r.since = append(r.since, since)
	r.acknowledged.Add(int64(len(tokens)))
	return nil
}
