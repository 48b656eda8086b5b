package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/web/display"
	"postrider/web/form"
	"postrider/web/site"
)

// publishView has a form with an event, and the equivalent commands.
type publishView struct {
	Action    string
	Topic     string
	Schema    string
	Event     form.Field
	Curl, SQL string
	Invalid   bool // the event is not JSON, so there are no commands
	Accepted  bool
	Events    []query.EventLine
	Others    []string
}

// publish publishes the event of the form through the REST API.
func (p *pages) publish(ctx context.Context, c echo.Context) error {
	topic, err := p.Parts.Topics.Get(ctx, c.Param("topic"))
	if err != nil {
		return err
	}
	f := form.New()
	f.Set("event", display.SampleEvent(topic, p.Now()))
	view := publishView{
		Action: "/ui/topics/" + topic.Name + "/publish", Topic: topic.Name, Schema: string(topic.InputSchema),
	}
	if c.Request().Method == http.MethodPost {
		f = postedForm(c)
		if !f.Has("preview") {
			err = p.publishForm(ctx, c, topic, f, &view)
		}
	}
	view.Event = f.Fields(form.Field{
		Name: "event", Label: "Event", Kind: form.KindJSON, Rows: 14, Wide: true, Required: true,
		Hint: "One event or an array of events in the schema of the topic, " + view.Schema + ".",
	})[0]
	view.Others = f.Mistakes[""]
	if view.Invalid = !json.Valid([]byte(f.Get("event"))); !view.Invalid {
		view.Curl, view.SQL = commandsOf(c, topic, display.SpellOut(f.Get("event")))
	}
	return site.Finish(c, "", err, func() error {
		return p.Show(c, "publish", "Publish to "+topic.Name, false, view,
			display.Link{Href: "/ui/topics/" + topic.Name, Text: topic.Name})
	})
}

// publishForm publishes and reads the stored events.
func (p *pages) publishForm(
	ctx context.Context, c echo.Context, topic *catalog.Topic, f *form.Input, view *publishView,
) error {
	body, contentType := publicationOf(topic, f.Get("event"))
	before := p.Now().Add(-time.Second)
	_, err := p.request(ctx, c, http.MethodPost, topic.PublishPath(), []byte(body), echo.HeaderContentType, contentType)
	if err == nil {
		view.Accepted = true
		if err := p.Parts.Access.NotePublished(ctx, topic.Name, len(eventsIn(body))); err != nil {
			return err
		}
		view.Events, err = p.publishedEvents(ctx, topic, body, before)
		return err
	}
	err = reject(f, err, "Nothing was published", "event", "events")
	f.Mistakes["event"] = append(f.Mistakes["event"], f.Mistakes["events"]...)
	delete(f.Mistakes, "events")
	return err
}

// publishedEvents are the events of a body that were stored since then. Without ids in the body, they are the topic's
// newest: the input mapping may have created the ids.
func (p *pages) publishedEvents(
	ctx context.Context, topic *catalog.Topic, body string, since time.Time,
) (found []query.EventLine, err error) {
	var ids []string
	list := eventsIn(body)
	for _, members := range list[:min(len(list), publishedShown)] {
		if id, _ := members["id"].(string); id != "" {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		ids = []string{""}
	}
	for _, id := range ids {
		filter := query.EventFilter{Topic: topic.Name, Event: id, From: &since, States: true}
		page, err := p.Parts.Reader.ReadEvents(ctx, filter, query.Turn[uuid.UUID]{Limit: publishedShown / len(ids)})
		if err != nil && !errors.Is(err, postgres.ErrTooSlow) {
			return nil, err
		}
		found = append(found, page.Rows...)
	}
	return found, nil
}

// publishedShown is the number of published events that are shown.
const publishedShown = 10

// eventsIn are the events of a body: an array, or one event.
func eventsIn(body string) (list []map[string]any) {
	if !strings.HasPrefix(body, "[") {
		body = "[" + body + "]"
	}
	_ = json.Unmarshal([]byte(body), &list) // the API has accepted it
	return list
}

// publicationOf is the request for the event of the form. A single event in the Event Grid schema becomes an array.
func publicationOf(t *catalog.Topic, input string) (body, contentType string) {
	array := strings.HasPrefix(input, "[")
	switch {
	case t.InputSchema == event.CloudEvents && array:
		return input, "application/cloudevents-batch+json"
	case t.InputSchema == event.CloudEvents:
		return input, "application/cloudevents+json"
	case t.InputSchema == event.EventGrid && !array:
		return "[" + input + "]", echo.MIMEApplicationJSON
	default:
		return input, echo.MIMEApplicationJSON
	}
}

// commandsOf are the shell command, with the access key in $KEY, and the SQL statement that publish the events.
func commandsOf(c echo.Context, t *catalog.Topic, events string) (curl, sql string) {
	body, contentType := publicationOf(t, events)
	curl = "curl -i " + display.QuoteShell(serverAddress(c)+t.PublishPath()) + " \\\n  -H \"aeg-sas-key: $KEY\" -H " +
		display.QuoteShell("Content-Type: "+contentType) + " \\\n  --data-raw " + display.QuoteShell(body)
	function := "postrider.publish"
	if strings.HasPrefix(events, "[") {
		function = "postrider.publish_batch"
	}
	return curl, "SELECT " + function + "(" + display.QuoteSQL(t.Name) + ", " + display.DollarQuote(events) + "::jsonb);"
}
