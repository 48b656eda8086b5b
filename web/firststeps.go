package web

import (
	"context"
	"net/url"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/catalog"
	"postrider/query"
	"postrider/web/display"
)

// firstStep is one of the steps to the first delivery: a page that does it, and the same as a command.
type firstStep struct {
	Title, Note string
	Href, Label string
	Command     string
	Done        bool
	Admin       bool // the page needs an admin
}

// firstSteps are shown until something has been published and an event subscription exists; else nil. An installation
// that published in the last day is not asked about further.
func (p *pages) firstSteps(ctx context.Context, c echo.Context, o *query.Overview) ([]firstStep, error) {
	if total(o.Day.Minutes).Published > 0 || o.Current.Pending > 0 {
		return nil, nil
	}
	topics, err := p.parts.Reader.ReadTopics(ctx, "", query.Turn[string]{Limit: display.PageSize})
	if err != nil {
		return nil, err
	}
	topic, subscribed := "", false
	for _, line := range topics.Rows {
		if line.Topic == catalog.SystemTopic {
			continue
		}
		if topic == "" || line.Subscriptions > 0 && !subscribed {
			topic = line.Topic
		}
		subscribed = subscribed || line.Subscriptions > 0
	}
	events, err := p.parts.Reader.ReadEvents(ctx, query.EventFilter{}, query.Turn[uuid.UUID]{Limit: 1})
	if err != nil || subscribed && len(events.Rows) > 0 {
		return nil, err
	}
	return stepsOf((&url.URL{Scheme: c.Scheme(), Host: c.Request().Host}).String(), topic, subscribed,
		len(events.Rows) > 0), nil
}

func stepsOf(server, topic string, subscribed, published bool) []firstStep {
	steps := []firstStep{
		{
			Title: "Create a topic", Note: "Publishers post events to it.", Href: "/ui/new-topic", Label: "New topic",
			Admin: true, Done: topic != "",
		},
		{
			Title: "Create an event subscription", Note: "It filters a topic’s events and delivers each match to an endpoint.",
			Href: "/ui/subscriptions/new", Label: "New event subscription", Admin: true, Done: subscribed,
		},
		{Title: "Publish an event", Note: "The page shows the same as curl and SQL commands.", Done: published},
	}
	if topic != "" {
		steps[2].Href, steps[2].Label = "/ui/topics/"+topic+"/publish", "Publish"
	} else {
		topic = "orders"
	}
	at := server + "/v1/topics/" + url.PathEscape(topic)
	put := func(address, body string) string {
		return "curl -X PUT " + quoteShell(address) + " \\\n  -H \"Authorization: Bearer $POSTRIDER_API_KEY\"" +
			" -H 'Content-Type: application/json' \\\n  -d " + quoteShell(body)
	}
	steps[0].Command = put(at, "{}")
	steps[1].Command = put(at+"/subscriptions/billing", `{"endpointUrl":"https://billing.example.com/events"}`)
	return steps
}
