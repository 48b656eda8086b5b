package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/catalog"
	"postrider/event"
	"postrider/postgres"
	"postrider/query"
	"postrider/web/display"
)

// publishView is what publish.html shows: a box with an event, and the same for a terminal and for psql.
type publishView struct {
	Action    string
	Topic     string
	Schema    string
	Event     formField
	Curl, SQL string
	Twins     string // why there are none
	Answered  bool
	Events    []query.EventLine
	Others    []string
}

// publish posts what is in the box to the topic, through the same door as every publisher.
func (p *pages) publish(c echo.Context) error {
	ctx, cancel := p.formContext(c)
	defer cancel()
	topic, err := p.parts.Topics.Get(ctx, c.Param("topic"))
	if err != nil {
		return err
	}
	f := newForm()
	f.set("event", sampleEvent(topic, p.now()))
	view := publishView{
		Action: "/ui/topics/" + topic.Name + "/publish", Topic: topic.Name, Schema: string(topic.InputSchema),
	}
	if c.Request().Method == http.MethodPost {
		if f, err = postedForm(c); err != nil {
			return err
		}
		if !f.has("preview") {
			if err := p.publishBox(ctx, c, topic, f, &view); err != nil {
				return err
			}
		}
	}
	view.Event = f.fields(formField{
		Name: "event", Label: "Event", Kind: kindJSON, Rows: 14, Wide: true, Required: true,
		Hint: "One event, or an array of them, in the topic’s schema: " + view.Schema + ".",
	})[0]
	view.Others = f.others
	view.Curl, view.SQL, view.Twins = twinsOf(c, topic, f.get("event"))
	return p.show(c, "publish", "Publish to "+topic.Name, false, view, link{"/ui/topics/" + topic.Name, topic.Name})
}

// publishBox publishes, and finds the events that have come of it.
func (p *pages) publishBox(
	ctx context.Context, c echo.Context, topic *catalog.Topic, f *form, view *publishView,
) error {
	body, contentType := publicationOf(topic, f.get("event"))
	before := p.now().Add(-time.Second)
	_, err := p.ask(ctx, c, http.MethodPost, doorOf(topic), []byte(body), echo.HeaderContentType, contentType)
	if err == nil {
		view.Answered = true
		if err := p.parts.Access.NotePublished(ctx, topic.Name, len(eventsIn(body))); err != nil {
			return err
		}
		view.Events, err = p.publishedEvents(ctx, topic, body, before)
		return err
	}
	if !f.blame(err, []string{"event", "events"}) {
		return err
	}
	f.mistakes["event"] = append(f.mistakes["event"], f.mistakes["events"]...)
	delete(f.mistakes, "events")
	c.Set(refusalKey, f.refusal(err, "Nothing was published"))
	return nil
}

// publishedEvents are the events since then with the ids that the box has, or else the topic's newest: a custom event's
// id may have been made.
func (p *pages) publishedEvents(
	ctx context.Context, topic *catalog.Topic, body string, since time.Time,
) ([]query.EventLine, error) {
	ids := idsIn(body)
	filters := make([]query.EventFilter, 0, len(ids))
	for _, id := range ids {
		filters = append(filters, query.EventFilter{Topic: topic.Name, Event: id, From: &since})
	}
	if len(filters) == 0 {
		filters = []query.EventFilter{{Topic: topic.Name, From: &since}}
	}
	var found []query.EventLine
	for _, filter := range filters {
		page, err := p.parts.Reader.ReadEvents(ctx, filter, query.Turn[uuid.UUID]{Limit: publishedShown / len(filters)})
		if err != nil && !errors.Is(err, postgres.ErrTooSlow) {
			return nil, err
		}
		found = append(found, page.Rows...)
	}
	return found, nil
}

// publishedShown is how many of the published events are shown.
const publishedShown = 10

// eventsIn are the events of a body: an array's, or the one that it is.
func eventsIn(body string) (list []map[string]json.RawMessage) {
	if json.Unmarshal([]byte(body), &list) == nil {
		return list
	}
	var one map[string]json.RawMessage
	if json.Unmarshal([]byte(body), &one) != nil {
		return nil
	}
	return []map[string]json.RawMessage{one}
}

// idsIn are the ids of the first events of a body, where they have any.
func idsIn(body string) (ids []string) {
	list := eventsIn(body)
	for _, members := range list[:min(len(list), publishedShown)] {
		var id string
		if json.Unmarshal(members["id"], &id) == nil && id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// doorOf is where the topic is published to.
func doorOf(t *catalog.Topic) string {
	if t.Kind == catalog.TopicNamespace {
		return "/topics/" + url.PathEscape(t.Name) + ":publish"
	}
	return "/topics/" + url.PathEscape(t.Name) + "/api/events"
}

// publicationOf is the body and the content type of what is in the box. The Event Grid schema is published in arrays,
// so that one event gets brackets around it.
func publicationOf(t *catalog.Topic, box string) (body, contentType string) {
	array := strings.HasPrefix(box, "[")
	switch {
	case t.InputSchema == event.CloudEvents && array:
		return box, "application/cloudevents-batch+json"
	case t.InputSchema == event.CloudEvents:
		return box, "application/cloudevents+json"
	case t.InputSchema == event.EventGrid && !array:
		return "[" + box + "]", echo.MIMEApplicationJSON
	default:
		return box, echo.MIMEApplicationJSON
	}
}

// twinsOf are the commands that publish the same: for a shell, with the key in $KEY, and for psql. why says what stands
// in their way.
func twinsOf(c echo.Context, t *catalog.Topic, box string) (curl, sql, why string) {
	if !json.Valid([]byte(box)) {
		return "", "", "What is in the box is not one JSON document yet."
	}
	box = spelledOut(box)
	body, contentType := publicationOf(t, box)
	address := (&url.URL{Scheme: c.Scheme(), Host: c.Request().Host}).String() + doorOf(t)
	curl = "curl -i " + quoteShell(address) + " \\\n  -H \"aeg-sas-key: $KEY\" -H " +
		quoteShell("Content-Type: "+contentType) + " \\\n  --data-raw " + quoteShell(body)
	function := "postrider.publish"
	if strings.HasPrefix(box, "[") {
		function = "postrider.publish_batch"
	}
	return curl, "SELECT " + function + "(" + quoteSQL(t.Name) + ", " + dollarQuoted(box) + "::jsonb);", ""
}

// spelledOut writes the characters of a JSON document that nobody can see as its escapes: who copies a command sees all
// of it.
func spelledOut(document string) string {
	var out strings.Builder
	for _, r := range document {
		if !display.IsHidden(r) {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.String()
}

// dollarQuoted writes a text as PostgreSQL reads it letter for letter. The tag is one that does not end the text too
// early, neither in it nor across its end: "…$event" would do that with "$event$".
func dollarQuoted(text string) string {
	tag := "$event$"
	for n := 1; strings.Index(text+tag, tag) != len(text); n++ {
		tag = "$event" + display.IDText(int64(n)) + "$"
	}
	return tag + text + tag
}

// sampleEvent is an event that the topic takes, to begin with.
func sampleEvent(t *catalog.Topic, now time.Time) string {
	id, at := uuid.NewString(), now.UTC().Format("2006-01-02T15:04:05Z")
	switch t.InputSchema {
	case event.CloudEvents:
		return display.Pretty(`{"specversion":"1.0","id":` + quoted(id) + `,"source":` + quoted("/"+t.Name) +
			`,"type":"Shop.OrderPlaced","subject":"orders/1807","time":` + quoted(at) +
			`,"datacontenttype":"application/json","data":{"total":12.50,"currency":"EUR"}}`)
	case event.EventGrid:
		return display.Pretty(`{"id":` + quoted(id) + `,"eventType":"Shop.OrderPlaced","subject":"orders/1807","eventTime":` +
			quoted(at) + `,"dataVersion":"1.0","data":{"total":12.50,"currency":"EUR"}}`)
	default:
		return display.Pretty(sampleOfMapping(t.InputSchemaMapping, id, at))
	}
}

// sampleOfMapping has a member for each field that the mapping names.
func sampleOfMapping(m *event.Mapping, id, at string) string {
	members := map[string]string{"currency": "EUR"}
	put := func(field, value string) {
		if field != "" {
			members[field] = value
		}
	}
	if m != nil {
		for _, one := range []struct {
			field *event.MappedField
			value string
		}{{m.Properties.ID, id}, {m.Properties.EventTime, at}} {
			if one.field != nil {
				put(one.field.SourceField, one.value)
			}
		}
		for _, one := range []struct {
			field *event.MappedFieldWithDefault
			value string
		}{
			{m.Properties.EventType, "Shop.OrderPlaced"},
			{m.Properties.Subject, "orders/1807"},
			{m.Properties.DataVersion, "1.0"},
		} {
			if one.field != nil {
				put(one.field.SourceField, one.value)
			}
		}
	}
	text, err := plainJSON(members)
	if err != nil {
		return "{}"
	}
	return string(text)
}

func quoted(text string) string { return string(textJSON(text)) }
