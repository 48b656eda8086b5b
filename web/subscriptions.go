package web

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/catalog"
	"postrider/policy"
	"postrider/postgres"
	"postrider/query"
	"postrider/web/display"
)

// subscriptionsView is what subscriptions.html shows.
type subscriptionsView struct {
	Filter   query.SubscriptionsFilter
	Holds    []choice
	Rows     []subscriptionRow
	Paging   display.Paging
	Filtered bool
}

type subscriptionRow struct {
	query.SubscriptionLine
	Href    string
	Success string
	Spark   display.Spark
}

func (p *pages) subscriptions(c echo.Context) error {
	q := display.QueryOf(c)
	holds := append([]string{"any"}, holdWords[:3]...)
	f := query.SubscriptionsFilter{Topic: q.Name("topic"), Name: q.Name("name"), Hold: q.OneOf("hold", holds)}
	turn := display.TurnOf(q, display.ParsePair)
	if q.Err != nil {
		return q.Err
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	found, err := p.parts.Reader.ReadSubscriptions(ctx, f, turn)
	if err != nil {
		return err
	}
	view := subscriptionsView{
		Filter: f, Holds: choices(holds, f.Hold), Filtered: f != query.SubscriptionsFilter{},
		Paging: display.PagingOf(c, found, func(l query.SubscriptionLine) string { return l.Topic + "/" + l.Subscription }),
	}
	for _, line := range found.Rows {
		view.Rows = append(view.Rows, subscriptionRow{
			SubscriptionLine: line, Href: subscriptionPath(line.Topic, line.Subscription),
			Spark:   display.SparkOf(line.SparkGood, line.SparkBad),
			Success: display.Percent(line.Attempts-line.Failures, line.Attempts),
		})
	}
	return p.show(c, "subscriptions", "Event subscriptions", true, view)
}

// subscriptionView is what subscription.html shows.
type subscriptionView struct {
	Subscription                 catalog.Subscription
	Path                         string
	Rules                        policy.Rules
	Filter                       string
	Headers                      []string
	Explanation                  *explanation
	Details                      query.SubscriptionDetails
	Day                          query.Minute
	Success                      string
	P50, P95                     string
	Held, Pending                string
	Ranges                       []display.RangeLink
	Charts                       []display.Chart
	Outcomes, Reasons            []share
	Latency                      []share
	Deliveries                   []deliveryRow
	CanProbe, CanPause, Batching bool
	HoldText                     string
	MaxEvents, BatchKilobytes    int
}

// explanation is "if it fails now": every attempt that would be made, with its times.
type explanation struct {
	Attempts []explainedAttempt
	Hidden   int // how many are not shown
	EndAt    time.Time
	EndAfter string
	State    string
	Reason   string
}

type explainedAttempt struct {
	Number int
	After  string
	At     time.Time
	Why    string
}

// explainedShown is how many attempts of an explanation are shown.
const explainedShown = 40

func (p *pages) subscription(c echo.Context) error {
	q := display.QueryOf(c)
	r := display.RangeOf(q)
	if q.Err != nil {
		return q.Err
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	sub, err := p.parts.Subscriptions.Get(ctx, c.Param("topic"), c.Param("subscription"))
	if err != nil {
		return err
	}
	details, err := p.parts.Reader.ReadSubscriptionDetails(ctx, sub, r.Span, r.Step)
	if err != nil {
		return err
	}
	view := subscriptionView{
		Subscription: *sub, Path: subscriptionPath(sub.Topic, sub.Name), Details: *details, Day: total(details.Day.Minutes),
		Ranges: display.RangeLinks(c, r),
		Charts: []display.Chart{display.OutcomeChart(r, details.Range), display.LatencyChart(r,
			details.Range.Minutes), display.TrafficChart(r, display.OwedSeries, details.Range.Minutes)},
		Held: atMost(details.Held, heldLimit), Pending: atMost(details.Pending, heldLimit),
		Deliveries: deliveryRows(details.Deliveries),
		CanPause:   sub.Hold.Reason != catalog.HoldPaused, Batching: sub.Batching(),
		CanProbe: sub.Hold.Reason == catalog.HoldProbation, HoldText: holdText(sub.Hold.Reason),
		MaxEvents: sub.Batch().MaxEvents, BatchKilobytes: sub.Batch().PreferredKilobytes,
	}
	view.Success = display.Percent(view.Day.Attempts-view.Day.Failures, view.Day.Attempts)
	view.P50, view.P95 = quantiles(&details.Day.Latency)
	deliveries := "/ui/deliveries?topic=" + sub.Topic + "&subscription=" + sub.Name + "&outcome="
	view.Outcomes = sharesOf(details.Day.Outcomes, func(name string) string { return deliveries + name })
	letters := "/ui/dead-letters?topic=" + sub.Topic + "&subscription=" + sub.Name + "&reason="
	view.Reasons = sharesOf(details.Day.Reasons, func(name string) string { return letters + name })
	view.Latency = latencyShares(&details.Day.Latency)
	if filter, err := json.Marshal(sub.Filter); err == nil {
		view.Filter = string(filter)
	}
	for _, attribute := range sub.DeliveryAttributes {
		view.Headers = append(view.Headers, attribute.Name)
	}
	p.explainFailure(sub, &view)
	return p.show(c, "subscription", sub.Name, true, view, link{"/ui/topics/" + sub.Topic, sub.Topic})
}

// explainFailure asks the policy itself what would follow if a delivery began now and met 500 each time.
func (p *pages) explainFailure(sub *catalog.Subscription, view *subscriptionView) {
	retryPolicy, ok := p.parts.Cache.Snapshot().Policy(sub.RetryPolicy)
	if !ok {
		return
	}
	view.Rules = retryPolicy.Resolve(sub.Wishes())
	minutes := int(view.Rules.Limits.TTL / time.Minute)
	options := policy.ExplainOptions{
		Kind: sub.EndpointKind, Behavior: sub.Behavior, TTLMinutes: &minutes, DeadLetter: &view.Rules.DeadLetter,
	}
	if n := view.Rules.Limits.MaxAttempts; n > 0 {
		options.MaxAttempts = &n
	}
	found, err := policy.Explain(retryPolicy, options)
	if err != nil {
		return
	}
	now := p.now()
	after := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	x := &explanation{
		EndAt: now.Add(after(found.End.AtSeconds)), EndAfter: display.Span(after(found.End.AtSeconds)),
		State: found.End.State, Reason: string(found.End.Reason),
	}
	for _, a := range found.Attempts[:min(len(found.Attempts), explainedShown)] {
		x.Attempts = append(x.Attempts, explainedAttempt{
			Number: a.Number, After: display.Span(after(a.AtSeconds)), At: now.Add(after(a.AtSeconds)), Why: a.Why,
		})
	}
	x.Hidden = len(found.Attempts) - len(x.Attempts)
	view.Explanation = x
}

func quantiles(l *query.Latency) (p50, p95 string) {
	half, ok := l.Quantile(0.5)
	most, _ := l.Quantile(0.95)
	if !ok {
		return "–", "–"
	}
	return display.Milliseconds(half), display.Milliseconds(most)
}

var latencyNames = []string{
	"< 5 ms", "< 10 ms", "< 25 ms", "< 50 ms", "< 100 ms", "< 250 ms", "< 500 ms", "< 1 s", "< 2.5 s", "< 5 s", "< 10 s",
	"< 30 s", "< 60 s", "longer",
}

// latencyShares leaves out what is empty at both ends.
func latencyShares(l *query.Latency) []share {
	var counts []query.Counted
	for i, n := range l {
		counts = append(counts, query.Counted{Name: latencyNames[i], Count: n})
	}
	for len(counts) > 0 && counts[len(counts)-1].Count == 0 {
		counts = counts[:len(counts)-1]
	}
	for len(counts) > 0 && counts[0].Count == 0 {
		counts = counts[1:]
	}
	shares := sharesOf(counts, func(string) string { return "" })
	for i := range shares {
		if shares[i].Count == 0 {
			shares[i].Percent = 0
		}
	}
	return shares
}

// topicsView is what topics.html shows.
type topicsView struct {
	Name   string
	Rows   []topicRow
	Paging display.Paging
}

type topicRow struct {
	query.TopicLine
	Spark display.Spark
}

func (p *pages) topics(c echo.Context) error {
	q := display.QueryOf(c)
	name, turn := q.Name("name"), display.TurnOf(q, display.ParseName)
	if q.Err != nil {
		return q.Err
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	found, err := p.parts.Reader.ReadTopics(ctx, name, turn)
	if err != nil {
		return err
	}
	view := topicsView{Name: name, Paging: display.PagingOf(c, found, func(l query.TopicLine) string { return l.Topic })}
	for _, line := range found.Rows {
		view.Rows = append(view.Rows, topicRow{line, display.SparkOf(line.SparkPublished, nil)})
	}
	return p.show(c, "topics", "Topics", true, view)
}

// topicView is what topic.html shows.
type topicView struct {
	query.TopicDetails
	// DuplicateWindow is for how long an event is known to have been published; 0 for not at all.
	DuplicateWindow time.Duration
	Mapping         []mappedLine // of a topic that takes events of the publisher's own schema
	Day             query.Minute
	Ranges          []display.RangeLink
	Charts          []display.Chart
	Subscriptions   []subscriptionRow
	More            bool
	Events          []query.EventLine
}

func (p *pages) topic(c echo.Context) error {
	q := display.QueryOf(c)
	r := display.RangeOf(q)
	if q.Err != nil {
		return q.Err
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	name := c.Param("topic")
	details, err := p.parts.Reader.ReadTopicDetails(ctx, name, r.Span, r.Step)
	if err != nil {
		return err
	}
	topic, err := p.parts.Topics.Get(ctx, name)
	if err != nil {
		return err
	}
	subs, err := p.parts.Reader.ReadSubscriptions(ctx, query.SubscriptionsFilter{Topic: name},
		query.Turn[query.SubscriptionKey]{Limit: display.PageSize})
	if err != nil {
		return err
	}
	events, err := p.parts.Reader.ReadEvents(ctx, query.EventFilter{Topic: name}, query.Turn[uuid.UUID]{Limit: 10})
	// the topic may have been silent while very many others were published to
	if err != nil && !errors.Is(err, postgres.ErrTooSlow) {
		return err
	}
	view := topicView{
		TopicDetails: *details, DuplicateWindow: topic.DuplicateWindow, Mapping: mappedLines(topic),
		Day: total(details.Day.Minutes), More: subs.Older, Events: events.Rows,
		Ranges: display.RangeLinks(c, r), Charts: []display.Chart{
			display.TrafficChart(r, display.PublishedSeries, details.Range.Minutes), display.OutcomeChart(r, details.Range),
		},
	}
	for _, line := range subs.Rows {
		view.Subscriptions = append(view.Subscriptions, subscriptionRow{
			SubscriptionLine: line, Href: subscriptionPath(line.Topic, line.Subscription),
			Spark:   display.SparkOf(line.SparkGood, line.SparkBad),
			Success: display.Percent(line.Attempts-line.Failures, line.Attempts),
		})
	}
	return p.show(c, "topic", name, true, view)
}
