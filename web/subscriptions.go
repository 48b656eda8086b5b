package web

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/internal/catalog"
	"postrider/internal/catalog/spec"
	"postrider/internal/destination"
	"postrider/internal/endpointconf"
	"postrider/internal/jsonscan"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/policy"
	"postrider/web/display"
	"postrider/web/site"
)

func (p *pages) subscriptions(ctx context.Context, c echo.Context) error {
	f := display.FilterOf(c)
	holds := []string{"any", catalog.HoldPaused, catalog.HoldNotValidated, catalog.HoldProbation}
	filter := query.SubscriptionsFilter{
		Topic: f.Name("Topic", "topic", ""), Name: f.Name("Name contains", "name", ""),
		Hold: f.OneOf("Hold", "hold", "", holds, ""),
	}
	list, err := site.ListOf(ctx, c, "event subscription", f, filter, p.readSubscriptions,
		func(l *query.SubscriptionLine) query.SubscriptionKey {
			return query.SubscriptionKey{Topic: l.Topic, Subscription: l.Subscription}
		})
	return p.ShowList(c, "subscriptions", "Event subscriptions", list, err)
}

// target returns the target of an event subscription. url is what was stored with an object, which may be that of an
// earlier destination; "" = the current one.
func (p *pages) target(topic, subscription, url string) display.Target {
	snapshot := p.Parts.Cache.Snapshot()
	if of, known := snapshot.Topic(topic); known {
		sub, known := snapshot.SubscriptionNamed(of.ID, subscription)
		if known && (url == "" || url == sub.EndpointBaseURL) {
			return display.TargetOf(sub)
		}
	}
	return display.Target{Kind: destination.TargetWords(url), URL: url}
}

// readSubscriptions reads a page of event subscriptions, with the texts of their settings that lists show.
func (p *pages) readSubscriptions(
	ctx context.Context, f query.SubscriptionsFilter, t query.Turn[query.SubscriptionKey],
) (query.SearchedPage[query.SubscriptionLine, query.SubscriptionKey], error) {
	page, err := p.Parts.Reader.ReadSubscriptions(ctx, f, t)
	snapshot := p.Parts.Cache.Snapshot()
	for i := range page.Rows {
		line := &page.Rows[i]
		topic, known := snapshot.Topic(line.Topic)
		if !known {
			continue
		}
		if sub, known := snapshot.SubscriptionNamed(topic.ID, line.Subscription); known {
			line.Listed = sub.Listed()
		}
	}
	return page, err
}

type subscriptionView struct {
	Subscription      *catalog.Subscription
	Path              string
	Rules             policy.Rules
	Filter            string
	Explanation       *policy.Explanation // nil if its retry policy no longer exists
	Hidden            int                 // attempts of the explanation that are not shown
	Details           query.SubscriptionDetails
	P50, P95          *float64 // the duration of attempts in milliseconds
	Ranges            []display.RangeLink
	Charts            []display.Chart
	Outcomes, Reasons []display.Share
	Latency           []display.Share
	HoldText          string
	Target            display.Target
	Destination       []display.Fact
	// Of requests or events, such as "30 requests/min"; "" = none. HostLimit applies instead of RateLimit.
	RateLimit, HostLimit string
}

// explainedShown is the number of attempts of an explanation that are shown.
const explainedShown = 40

func (p *pages) subscription(ctx context.Context, c echo.Context) error {
	f := display.FilterOf(c)
	r := display.RangeOf(f)
	if f.Err != nil {
		return f.Err
	}
	sub, err := p.Parts.Subscriptions.Get(ctx, c.Param("topic"), c.Param("subscription"))
	if err != nil {
		return err
	}
	details, err := p.Parts.Reader.ReadSubscriptionDetails(ctx, sub, r.Span, r.Step)
	if err != nil {
		return err
	}
	of := "?topic=" + sub.Topic + "&subscription=" + sub.Name
	view := subscriptionView{
		Subscription: sub, Path: subscriptionPath(sub.Topic, sub.Name), Details: *details,
		Ranges: display.RangeLinks(c, r),
		Charts: []display.Chart{
			display.OutcomeChart(r, details.Range), display.LatencyChart(r, details.Range.Minutes),
			display.TrafficChart(r, display.MatchedSeries, details.Range.Minutes),
		},
		Target: display.TargetOf(sub), Destination: display.DestinationFacts(sub),
		HoldText: holdTexts[sub.Hold.Reason], Latency: display.LatencyShares(&details.Day.Total.Latency),
		Outcomes: display.SharesOf(details.Day.Outcomes,
			func(name string) string { return "/ui/deliveries" + of + "&lastOutcome=" + name }),
		Reasons: display.SharesOf(details.Day.Reasons,
			func(name string) string { return "/ui/dead-letters" + of + "&reason=" + name }),
	}
	if limit := p.showRate(sub, &view); limit > 0 {
		view.Charts = append(view.Charts, display.RateChart(r, limit, details.Range.Minutes))
	}
	if median, ok := details.Day.Total.Latency.Quantile(0.5); ok {
		p95, _ := details.Day.Total.Latency.Quantile(0.95)
		view.P50, view.P95 = &median, &p95
	}
	if filter, err := json.Marshal(sub.Filter); err == nil {
		view.Filter = string(filter)
	}
	p.explainFailure(sub, &view)
	return p.Show(c, "subscription", sub.Name, true, view, display.Link{Href: "/ui/topics/" + sub.Topic, Text: sub.Topic})
}

// showRate shows the rate limit. It returns how many deliveries per second it allows, with full batches; 0 if none is
// set.
func (p *pages) showRate(sub *catalog.Subscription, view *subscriptionView) (limit float64) {
	rate := view.Details.Rate
	if rate == nil || sub.DeliveryRate == nil || rate.Own == nil {
		return 0
	}
	perEvent := sub.DeliveryRate.Count == endpointconf.RateOfEvents
	view.RateLimit = catalog.Rate{Step: sub.DeliveryRate.Step(), PerEvent: perEvent}.Amount()
	view.HostLimit = p.Parts.Cache.Snapshot().LowerLimit(sub)
	if perEvent {
		return *rate.Own
	}
	return *rate.Own * float64(sub.Batch().MaxEvents)
}

// explainFailure lists the attempts of a delivery that starts now and always gets status 500.
func (p *pages) explainFailure(sub *catalog.Subscription, view *subscriptionView) {
	retryPolicy, ok := p.Parts.Cache.Snapshot().Policy(sub.RetryPolicy.Policy)
	if !ok {
		return
	}
	view.Rules = retryPolicy.Resolve(sub.Overrides())
	minutes := int(view.Rules.Limits.TTL / time.Minute)
	options := policy.ExplainOptions{
		Kind: sub.EndpointKind, Behavior: sub.Behavior, TTLMinutes: &minutes, DeadLetter: &view.Rules.DeadLetter,
	}
	if n := view.Rules.Limits.MaxAttempts; n > 0 {
		options.MaxAttempts = &n
	}
	if found, err := policy.Explain(retryPolicy, options); err == nil {
		view.Hidden = max(0, len(found.Attempts)-explainedShown)
		found.Attempts = found.Attempts[:len(found.Attempts)-view.Hidden]
		view.Explanation = &found
	}
}

func (p *pages) topics(ctx context.Context, c echo.Context) error {
	f := display.FilterOf(c)
	name := f.Name("Name contains", "name", "")
	list, err := site.ListOf(ctx, c, "topic", f, name, p.Parts.Reader.ReadTopics,
		func(l *query.TopicLine) string { return l.Topic })
	return p.ShowList(c, "topics", "Topics", list, err)
}

type topicView struct {
	query.TopicDetails
	// DuplicateWindow is how long duplicates of an event are detected; 0 is never.
	DuplicateWindow time.Duration
	Mapping         []mappedLine // of a topic with custom input schema
	Relays          bool
	Feeds           []query.RelayFeed // the newest; a topic that was a relay may have some
	Ranges          []display.RangeLink
	Charts          []display.Chart
	Subscriptions   query.SearchedPage[query.SubscriptionLine, query.SubscriptionKey]
	Events          []query.EventLine
}

func (p *pages) topic(ctx context.Context, c echo.Context) error {
	f := display.FilterOf(c)
	r := display.RangeOf(f)
	if f.Err != nil {
		return f.Err
	}
	name := c.Param("topic")
	details, err := p.Parts.Reader.ReadTopicDetails(ctx, name, r.Span, r.Step)
	if err != nil {
		return err
	}
	topic, err := p.Parts.Topics.Get(ctx, name)
	if err != nil {
		return err
	}
	subs, err := p.readSubscriptions(ctx, query.SubscriptionsFilter{Topic: name},
		query.Turn[query.SubscriptionKey]{Limit: display.PageSize})
	if err != nil {
		return err
	}
	events, err := p.Parts.Reader.ReadEvents(ctx, query.EventFilter{Topic: name, States: true},
		query.Turn[uuid.UUID]{Limit: 10})
	// The query is too slow if the topic has no events and other topics have very many.
	if err != nil && !errors.Is(err, postgres.ErrTooSlow) {
		return err
	}
	feeds, err := p.Parts.Reader.ReadRelayFeeds(ctx, query.RelayFeedFilter{Topic: name},
		query.Turn[int64]{Limit: display.PageSize})
	if err != nil {
		return err
	}
	var lines []mappedLine
	object := jsonscan.MustEncode(map[string]any{mapping: topic.InputSchemaMapping})
	for _, member := range mappedMembers {
		line := mappedLine{Label: member.label}
		_ = json.Unmarshal(spec.At(object, mappingAt+member.name+".sourceField"), &line.Field)
		_ = json.Unmarshal(spec.At(object, mappingAt+member.name+".defaultValue"), &line.Default)
		if line.Field+line.Default != "" {
			lines = append(lines, line)
		}
	}
	return p.Show(c, "topic", name, true, topicView{
		TopicDetails: *details, DuplicateWindow: topic.DuplicateWindow, Mapping: lines,
		Relays: topic.Relays(), Feeds: feeds.Rows,
		Ranges: display.RangeLinks(c, r), Subscriptions: subs, Events: events.Rows,
		Charts: []display.Chart{
			display.TrafficChart(r, display.PublishedSeries, details.Range.Minutes), display.OutcomeChart(r, details.Range),
		},
	})
}
