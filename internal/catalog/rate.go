package catalog

import (
	"strconv"
	"strings"
	"time"

	"postrider/internal/endpointconf"
)

// Rate is a limit on an event subscription's deliveries: one row of postrider_internal.delivery_rates, which other
// event subscriptions may share.
type Rate struct {
	// Key of the row: "subscription:17" or "host:billing.example.com".
	Key string
	// Step is the time between two requests or events; Burst is how many may be sent at once.
	Step     time.Duration
	Burst    int
	PerEvent bool
	// PerRequest is how many permits of the limit its next requests take at most: one of each event subscription that
	// shares it, and of events twice a batch.
	PerRequest int
}

// String names the limit: "the rate limit of 50 requests/s".
func (r Rate) String() string {
	of := "the rate limit of"
	if strings.HasPrefix(r.Key, "host:") {
		of = "the rate limit of its host,"
	}
	return of + " " + r.Amount()
}

// Amount is the limit without its name: "50 requests/s".
func (r Rate) Amount() string { return endpointconf.RateText(r.Step, r.PerEvent) }

// Rate is the limit on an event subscription's deliveries; false if there is none.
func (c *Snapshot) Rate(subscription int64) (Rate, bool) {
	r, ok := c.rates[subscription]
	return r, ok
}

// LowerLimit is the limit of its host, "30 requests/min", if that is lower than the one that an event subscription
// sets; otherwise "".
func (c *Snapshot) LowerLimit(s *Subscription) string {
	r, limited := c.rates[s.ID]
	if !limited || s.DeliveryRate == nil || r.Step <= s.DeliveryRate.Step() {
		return ""
	}
	return r.Amount()
}

// Rates are the limits by event subscription. They must not be changed.
func (c *Snapshot) Rates() map[int64]Rate { return c.rates }

// resolveRates computes the limits of all event subscriptions, because those of one endpoint depend on each other.
func (c *Snapshot) resolveRates() {
	c.rates = map[int64]Rate{}
	lowest, most := map[string]Rate{}, map[string]int{}
	for id, s := range c.subs {
		limit := s.DeliveryRate
		if limit == nil {
			continue
		}
		r := Rate{
			Key: "subscription:" + strconv.FormatInt(id, 10), Step: limit.Step(), Burst: limit.MaxBurst(),
			PerEvent: limit.Count == endpointconf.RateOfEvents, PerRequest: 1,
		}
		if r.PerEvent {
			r.PerRequest = 2 * s.Batch().MaxEvents // of two nodes at a time
		}
		if limit.Scope == endpointconf.RatePerEndpoint {
			r.Key = "host:" + hostOf(s.EndpointBaseURL)
			of, known := lowest[r.Key]
			if !known || r.Step > of.Step || r.Step == of.Step && r.Burst < of.Burst {
				lowest[r.Key] = r
			}
			most[r.Key] += r.PerRequest
		}
		c.rates[id] = r
	}
	for id, r := range c.rates {
		if of, shared := lowest[r.Key]; shared {
			r.Step, r.Burst, r.PerRequest = of.Step, of.Burst, most[r.Key]
			c.rates[id] = r
		}
	}
}

// hostOf is the host of a URL in lower case, with its port unless that is the default one. Of a broker it is all
// servers.
// postrider_internal.endpoint_host is the same in SQL.
func hostOf(base string) string {
	scheme, rest, found := strings.Cut(strings.ToLower(base), "://")
	if !found {
		return base
	}
	host := rest[:strings.IndexAny(rest+"/", "/?#")]
	port := map[string]string{"http": ":80", "https": ":443"}[scheme]
	return strings.TrimSuffix(host, port)
}
