package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"postrider/cmd/postrider/app"
	"postrider/jobs"
	"postrider/policy"
	"postrider/query"
	"postrider/server"
)

// ends are the metrics of deliveries that ended without a success, by kind.
var ends = map[string]*prometheus.Desc{
	"dead_lettered": deadLettered, "dropped": droppedEvents, "canceled": canceledEvents,
}

// addressee is an event subscription by its names.
type addressee struct{ topic, subscription string }

// collectTotals adds up what several rows make one series of: deliveries that needed one attempt or more, requests of
// all outcomes.
func collectTotals(out series, totals []query.Total) {
	matched, delivered, times := map[addressee]int64{}, map[addressee]int64{}, map[addressee]*query.Latency{}
	for i := range totals {
		t := &totals[i]
		to := addressee{t.Topic, t.Subscription}
		switch t.Kind {
		case "published":
			out.counter(publishSuccess, float64(t.Count), t.Topic)
		case "duplicate":
			out.counter(duplicateEvents, float64(t.Count), t.Topic)
		case "owed":
			matched[to] += t.Count
			delivered[to] += 0 // a series from the first event on: an alert must see it stand still
		case "delivered":
			delivered[to] += t.Count
		case "attempt":
			if t.Detail != string(policy.OutcomeDelivered) {
				out.counter(attemptFailures, float64(t.Count), t.Topic, t.Subscription, t.Detail)
			}
			times[to] = times[to].Plus(t.Latency)
		case "dead_lettered", "dropped", "canceled":
			out.counter(ends[t.Kind], float64(t.Count), t.Topic, t.Subscription, t.Detail)
		}
	}
	for to, n := range matched {
		out.counter(matchedEvents, float64(n), to.topic, to.subscription)
	}
	for to, n := range delivered {
		out.counter(deliverySuccess, float64(n), to.topic, to.subscription)
	}
	for to, l := range times {
		out.histogram(endpointDuration, l.Distribution(), perSecond, to.topic, to.subscription)
	}
}

func collectStore(out series, s *app.System) {
	publishes, records := s.Publisher.PublishCounters(), s.Recorder.RecorderCounters()
	jobs, exports := s.JobRows.JobCounters(), s.Exports.ExportCounters()
	out.histogram(publishGroup, publishes.Groups, 1)
	out.histogram(publishTime, publishes.Time, perSecond)
	out.histogram(recordFlush, records.Flushes, 1)
	out.histogram(recordTime, records.Time, perSecond)
	out.counter(recordFailures, float64(records.Failures))
	out.counter(promotedJobs, float64(jobs.Promoted))
	out.counter(releasedHolds, float64(s.Releaser.ReleasedCount()))
	out.counter(reclaimedJobs, float64(jobs.Reclaimed))
	out.counter(endedExports, float64(exports.Written), "exported")
	out.counter(endedExports, float64(exports.Abandoned), "abandoned")
	out.counter(sweeperFinds, float64(s.Maintenance.SweeperFinds()))
	out.gauge(waitingPublish, float64(publishes.Waiting))
	out.gauge(waitingBytes, float64(publishes.WaitingBytes))
	out.gauge(waitingResults, float64(records.Waiting))
	out.gauge(bodyBytes, float64(s.Memory.InUse()))
	out.gauge(diskFull, map[bool]float64{true: 1}[s.Disk.DiskFull()])
	pool := s.DB.Pool.Stat()
	out.gauge(poolConnections, float64(pool.AcquiredConns()), "acquired")
	out.gauge(poolConnections, float64(pool.IdleConns()), "idle")
	out.gauge(poolConnections, float64(pool.ConstructingConns()), "made")
	out.gauge(poolMax, float64(pool.MaxConns()))
	out.counter(poolAcquires, float64(pool.AcquireCount()))
	out.counter(poolWaits, float64(pool.EmptyAcquireCount()))
	out.counter(poolWaited, pool.EmptyAcquireWaitTime().Seconds())
}

func collectEngine(out series, n jobs.Stats) {
	out.gauge(inFlight, float64(n.InFlight))
	out.gauge(maxInFlight, float64(n.MaxWorkers))
	out.gauge(openCalls, float64(n.OpenCalls))
	out.gauge(stalled, n.Stalled.Seconds())
}

func collectServer(out series, n server.Stats) {
	out.histogram(publishLatency, n.Published, perSecond)
	for key, times := range n.Answers {
		out.histogram(httpRequests, times, perSecond, key.Method, key.Route, strconv.Itoa(key.Status))
	}
	for key, count := range n.PublishFailures {
		out.counter(publishFailures, float64(count), key.Topic, errorType(key.Status), key.Code)
	}
	for topic, count := range n.Unmatched {
		out.counter(unmatchedEvents, float64(count), topic)
	}
}

// errorType says whose fault it is.
func errorType(status int) string {
	if status >= 500 {
		return "server"
	}
	return "client"
}

// perSecond makes seconds of nanoseconds.
const perSecond = float64(time.Second)
