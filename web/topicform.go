package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/catalog"
	"postrider/event"
	"postrider/web/display"
)

// mappedMembers are the members of an event's envelope that a custom topic maps, and which of them may have a default.
var mappedMembers = []struct {
	name, label string
	defaults    bool
}{
	{"id", "Id", false},
	{"eventType", "Event type", true},
	{"subject", "Subject", true},
	{"eventTime", "Time", false},
	{"dataVersion", "Data version", true},
	{"topic", "Topic", false},
}

const mappingAt = "inputSchemaMapping.properties."

// topicForm is the form of a topic as it is stored.
func topicForm(t *catalog.Topic) *form {
	f := newForm()
	f.set("kind", string(t.Kind))
	f.set("inputSchema", string(t.InputSchema))
	if t.EventRetentionInDays > 0 {
		f.set("eventRetentionInDays", strconv.Itoa(t.EventRetentionInDays))
	}
	if t.DuplicateWindow > 0 {
		f.set("duplicateDetectionWindowInMinutes", strconv.Itoa(int(t.DuplicateWindow/time.Minute)))
	}
	f.fillMapping(t.InputSchemaMapping)
	return f
}

// mappedLine is one member of an event's envelope and where it comes from.
type mappedLine struct{ Label, Field, Default string }

// mappedLines is a topic's input mapping as its form has it; none where there is none.
func mappedLines(t *catalog.Topic) (lines []mappedLine) {
	f := topicForm(t)
	for _, member := range mappedMembers {
		at := mappingAt + member.name
		if line := (mappedLine{member.label, f.get(at + ".sourceField"), f.get(at + ".defaultValue")}); line.Field+
			line.Default != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func (f *form) fillMapping(m *event.Mapping) {
	if m == nil {
		return
	}
	for name, field := range map[string]*event.MappedField{
		"id": m.Properties.ID, "topic": m.Properties.Topic, "eventTime": m.Properties.EventTime,
	} {
		if field != nil {
			f.set(mappingAt+name+".sourceField", field.SourceField)
		}
	}
	for name, field := range map[string]*event.MappedFieldWithDefault{
		"eventType": m.Properties.EventType, "subject": m.Properties.Subject, "dataVersion": m.Properties.DataVersion,
	} {
		if field != nil {
			f.set(mappingAt+name+".sourceField", field.SourceField)
			f.set(mappingAt+name+".defaultValue", display.OrEmpty(field.DefaultValue))
		}
	}
}

// topicSettings is what the form says, as the API takes it. Of one that exists the mapping is the stored one: it cannot
// be changed, and a form does not tell an empty default from none.
func topicSettings(f *form, existing *catalog.Topic) map[string]any {
	settings := map[string]any{
		"kind": f.orNull("kind"), "inputSchema": f.orNull("inputSchema"), "inputSchemaMapping": f.mapping(),
		"eventRetentionInDays":              f.number("eventRetentionInDays"),
		"duplicateDetectionWindowInMinutes": f.number("duplicateDetectionWindowInMinutes"),
	}
	if existing != nil {
		settings["kind"], settings["inputSchema"], settings["inputSchemaMapping"] = existing.Kind, existing.InputSchema,
			existing.InputSchemaMapping
	}
	return settings
}

func (f *form) mapping() any {
	if f.get("inputSchema") != string(event.Custom) {
		return nil
	}
	properties := map[string]any{}
	for _, member := range mappedMembers {
		field := map[string]any{}
		for _, part := range []string{"sourceField", "defaultValue"} {
			if text := f.get(mappingAt + member.name + "." + part); text != "" {
				field[part] = text
			}
		}
		if len(field) > 0 {
			properties[member.name] = field
		}
	}
	return map[string]any{"inputSchemaMappingType": "Json", "properties": properties}
}

func topicSections(f *form, existing *catalog.Topic) []formSection {
	fixed := existing != nil
	custom := f.get("inputSchema") == string(event.Custom)
	var first []formField
	if !fixed {
		first = append(first,
			formField{Name: "name", Label: "Name", Kind: kindText, Required: true, Hint: "3 to 64 letters, digits, dots, " +
				"underscores and hyphens."})
	}
	first = append(first,
		formField{Name: "kind", Label: "Kind", Kind: kindSelect, Fixed: fixed, Options: options("",
			"basic, Event Grid’s custom topic", "namespace", "namespace: CloudEvents only")},
		formField{Name: "inputSchema", Label: "Takes", Kind: kindSelect, Fixed: fixed, Options: options("",
			"the kind’s own: Event Grid events, or CloudEvents", string(event.EventGrid), "EventGridSchema",
			string(event.CloudEvents), "CloudEventSchemaV1_0", string(event.Custom),
			"CustomEventSchema: your own JSON, mapped below")},
	)
	sections := []formSection{
		{ID: "topic", Title: "Topic", Lead: "Kind, schema and mapping cannot be changed later.", Fields: f.fields(first...)},
	}
	if !fixed || custom {
		sections = append(sections,
			formSection{
				ID: "mapping", Title: "Mapping", Lead: "Of CustomEventSchema: which members of your objects are the event’s",
				Folded: !custom, Fields: f.fields(mappingFields(fixed)...),
			})
	}
	limits := []formField{
		{
			Name: "duplicateDetectionWindowInMinutes", Label: "Duplicates are known for (min)", Kind: kindNumber, Min: "1",
			Max: "10080", Placeholder: "not at all", Hint: "For so long an event of the same source and id is not stored " +
				"again. 1440 is a day. Empty: every event is stored.",
		},
	}
	if !fixed || existing.Kind == catalog.TopicNamespace {
		limits = append(limits,
			formField{
				Name: "eventRetentionInDays", Label: "Namespace: events live for (days)", Kind: kindNumber, Min: "1", Max: "7",
				Placeholder: "7",
			})
	}
	return openWhere(append(sections, formSection{ID: "limits", Title: "Limits", Fields: f.fields(limits...)}))
}

func mappingFields(fixed bool) []formField {
	var list []formField
	for _, member := range mappedMembers {
		list = append(list, formField{
			Name: mappingAt + member.name + ".sourceField", Label: member.label + ": member", Kind: kindText, Fixed: fixed,
		})
		if member.defaults {
			list = append(list, formField{
				Name: mappingAt + member.name + ".defaultValue", Label: member.label + ": default", Kind: kindText, Fixed: fixed,
			})
		}
	}
	return list
}

func (p *pages) newTopic(c echo.Context) error { return p.editTopic(c, "") }

func (p *pages) changeTopic(c echo.Context) error { return p.editTopic(c, c.Param("topic")) }

func (p *pages) editTopic(c echo.Context, name string) error {
	ctx, cancel := p.formContext(c)
	defer cancel()
	var existing *catalog.Topic
	f := newForm()
	if name != "" {
		found, err := p.parts.Topics.Get(ctx, name)
		if err != nil {
			return err
		}
		existing, f = found, topicForm(found)
		f.set("etag", etagOf(found.Version))
	}
	if c.Request().Method == http.MethodPost {
		var err error
		if f, err = postedForm(c); err != nil {
			return err
		}
		if href, err := p.saveTopic(ctx, c, f, existing); err != nil || href != "" {
			return leave(c, href, err)
		}
	}
	view := formView{
		Action: "/ui/new-topic", Back: "/ui/topics", Save: "Create", Etag: f.get("etag"), Others: f.others,
		Sections: topicSections(f, existing),
	}
	if existing == nil {
		return p.show(c, "topic-form", "New topic", false, view)
	}
	view.Back, view.Save = "/ui/topics/"+name, "Save"
	view.Action = view.Back + "/edit"
	return p.show(c, "topic-form", "Edit "+name, false, view, link{view.Back, name})
}

func (p *pages) saveTopic(
	ctx context.Context, c echo.Context, f *form, existing *catalog.Topic,
) (href string, err error) {
	name, done, condition := f.get("name"), "topic-made", []string{"If-None-Match", "*"}
	if existing != nil {
		name, done, condition = existing.Name, "topic-saved", []string{"If-Match", f.get("etag")}
	}
	body, err := plainJSON(topicSettings(f, existing))
	if err != nil {
		return "", fmt.Errorf("write the settings: %w", err)
	}
	err = &apiError{status: http.StatusBadRequest, Details: []apiProblem{{Target: "name", Message: "A name is required."}}}
	if name != "" {
		_, err = p.ask(ctx, c, http.MethodPut, apiTopic(name), body, condition...)
	}
	if err == nil {
		return "/ui/topics/" + name + "?done=" + done, nil
	}
	var refused *apiError
	late := errors.As(err, &refused) && refused.status == http.StatusPreconditionFailed
	if late && existing == nil {
		refused.Details = []apiProblem{{Target: "name", Message: "There is a topic of this name already."}}
	}
	if !f.blame(err, namesOf(topicSections(f, existing))) {
		return "", err
	}
	c.Set(refusalKey, f.refusal(err, "Nothing was saved"))
	if late && existing != nil {
		f.others = nil
		f.set("etag", etagOf(existing.Version))
		c.Set(refusalKey,
			&refusedError{status: refused.status, text: "Nothing was saved: somebody else has changed this topic, or its " +
				"keys, since you opened the form. Save again to replace what they have set."})
	}
	return "", nil
}

// keysView is what topic-keys.html shows.
type keysView struct {
	Topic string
	Shown bool
	Keys  []accessKey
	Names []string
}

type accessKey struct{ Name, Key string }

// topicKeys shows access keys to who asks for them, and replaces one. Both are in the audit.
func (p *pages) topicKeys(c echo.Context) error {
	ctx, cancel := p.formContext(c)
	defer cancel()
	topic, err := p.parts.Topics.Get(ctx, c.Param("topic"))
	if err != nil {
		return err
	}
	view := keysView{Topic: topic.Name, Names: []string{"key1", "key2"}}
	if c.Request().Method == http.MethodPost {
		if err := p.readKeys(ctx, c, &view); err != nil {
			return err
		}
	}
	return p.show(c, "topic-keys", "Access keys", false, view, link{"/ui/topics/" + topic.Name, topic.Name})
}

func (p *pages) readKeys(ctx context.Context, c echo.Context, view *keysView) error {
	f, err := postedForm(c)
	if err != nil {
		return err
	}
	path, body := apiTopic(view.Topic)+"/listKeys", []byte(nil)
	if name := f.get("regenerate"); name != "" {
		if !f.has("agreed") {
			c.Set(refusalKey,
				&refusedError{status: http.StatusBadRequest, text: "Nothing was done: say that no publisher uses " + name +
					" any more, or that those who do may be refused."})
			return nil
		}
		path = apiTopic(view.Topic) + "/regenerateKey"
		if body, err = plainJSON(map[string]string{"keyName": name}); err != nil {
			return fmt.Errorf("write the key's name: %w", err)
		}
	}
	answer, err := p.ask(ctx, c, http.MethodPost, path, body)
	if err != nil {
		if !f.blame(err, nil) {
			return err
		}
		c.Set(refusalKey, f.refusal(err, "Nothing was done"))
		return nil
	}
	var keys struct{ Key1, Key2 string }
	if err := answer.read(&keys); err != nil {
		return err
	}
	view.Shown, view.Keys = true, []accessKey{{"key1", keys.Key1}, {"key2", keys.Key2}}
	return nil
}
