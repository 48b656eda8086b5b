package endpointconf

import (
	"math"
	"strconv"
	"time"
)

// RateScope is what shares a delivery rate.
type RateScope string

// The scopes of delivery rates.
const (
	RatePerSubscription RateScope = "subscription"
	// RatePerEndpoint is shared by all event subscriptions whose endpoints have the same host. The lowest of their limits
	// holds for all of them.
	RatePerEndpoint RateScope = "endpoint"
)

// RateCount is what a delivery rate counts.
type RateCount string

// What delivery rates count. They differ for batches.
const (
	RateOfRequests RateCount = "requests"
	RateOfEvents   RateCount = "events"
)

// DeliveryRate is a limit of requests or events per period, over all nodes.
//
// The source of its rules is docs/internals/delivery.md.
type DeliveryRate struct {
	Limit int `json:"limit"`
	// PeriodInSeconds is the length of a period; nil = 1.
	PeriodInSeconds *int `json:"periodInSeconds,omitempty"`
	// Burst is how many may be sent at once after a pause; nil = those of a quarter of a second.
	Burst *int      `json:"burst,omitempty"`
	Scope RateScope `json:"scope,omitempty" minLength:"1"`
	Count RateCount `json:"count,omitempty" minLength:"1"`
}

// perSecond is the rate in requests or events per second.
func (r *DeliveryRate) perSecond() float64 {
	period := 1
	if r.PeriodInSeconds != nil {
		period = *r.PeriodInSeconds
	}
	return float64(r.Limit) / float64(period)
}

// Step is the time between two requests or events at this rate.
func (r *DeliveryRate) Step() time.Duration {
	return time.Duration(float64(time.Second) / r.perSecond())
}

// rateTick is how much of a rate may be sent at once without a burst.
const rateTick = 250 * time.Millisecond

// MaxBurst is how many may be sent at once, at least 1.
func (r *DeliveryRate) MaxBurst() int {
	if r.Burst != nil {
		return *r.Burst
	}
	return max(int(math.Round(r.perSecond()*rateTick.Seconds())), 1)
}

// RateText is a rate with step between two requests or events: "50 requests/s".
func RateText(step time.Duration, perEvent bool) string {
	amount, unit := float64(time.Second)/float64(step), "s"
	for _, longer := range []struct {
		unit string
		n    float64
	}{{"min", 60}, {"h", 60}, {"day", 24}} {
		if amount >= 1 {
			break
		}
		amount, unit = amount*longer.n, longer.unit
	}
	what := "request"
	if perEvent {
		what = "event"
	}
	number := strconv.FormatFloat(amount, 'g', 3, 64)
	if amount >= 100 {
		number = strconv.FormatFloat(amount, 'f', 0, 64)
	}
	if number != "1" {
		what += "s"
	}
	return number + " " + what + "/" + unit
}
