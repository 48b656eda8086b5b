package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"postrider/catalog"
	"postrider/catalog/spec"
	"postrider/web/site"
)

// mappedMembers are the members of an event that the input mapping of a custom topic takes from the published object.
// Only some may have a default.
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

const (
	mapping   = "inputSchemaMapping"
	mappingAt = mapping + ".properties."
)

// topicTable is the table of a topic's settings, with a setting for each part of the input mapping.
func topicTable() []spec.Setting {
	at := slices.IndexFunc(spec.Topic, func(s spec.Setting) bool { return s.Name == mapping })
	whole := spec.Topic[at]
	var parts []spec.Setting
	add := func(name, label, help string) {
		parts = append(parts, spec.Setting{
			Name: mappingAt + name, Section: whole.Section, Label: label, Help: help, Kind: spec.Text, Default: whole.Default,
			Fixed: whole.Fixed,
		})
	}
	for _, member := range mappedMembers {
		add(member.name+".sourceField", member.label, "Of CustomEventSchema: member of the published object.")
		if member.defaults {
			add(member.name+".defaultValue", member.label+" default", "Value of events without that member.")
		}
	}
	return slices.Concat(spec.Topic[:at], parts, spec.Topic[at+1:])
}

// mappedLine is one member of an event and where it comes from.
type mappedLine struct{ Label, Field, Default string }

// mappedLines are the parts of a topic's input mapping; none if it has no mapping.
func mappedLines(t *catalog.Topic) (lines []mappedLine) {
	object, _ := plainJSON(map[string]any{mapping: t.InputSchemaMapping}) // strings can always be written
	for _, member := range mappedMembers {
		line := mappedLine{Label: member.label}
		_ = json.Unmarshal(spec.At(object, mappingAt+member.name+".sourceField"), &line.Field)
		_ = json.Unmarshal(spec.At(object, mappingAt+member.name+".defaultValue"), &line.Default)
		if line.Field+line.Default != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func (p *pages) openTopic(ctx context.Context, c echo.Context) (*editor, error) {
	const list = "/ui/topics"
	name, done := c.Param("topic"), "?done=topic-made"
	e := &editor{
		table: topicTable(), noun: "topic", name: name, address: apiTopic, method: http.MethodPut,
		folded: []string{spec.Mapping}, finish: finishTopic, trail: []site.Link{{Href: list, Text: "Topics"}},
		removed: list + "?done=topic-deleted",
		saved:   func(name string, _ *apiAnswer) (string, error) { return list + "/" + name + done, nil },
		removal: func(ctx context.Context) (forbidden, canceled string, err error) {
			subs, err := p.parts.Subscriptions.List(ctx, name, "", 1)
			if len(subs) > 0 {
				forbidden = "It has event subscriptions. Delete those first."
			}
			return forbidden, "", err
		},
	}
	if name == "" {
		return e, nil
	}
	done, e.trail = "?done=topic-saved", []site.Link{{Href: list + "/" + name, Text: name}}
	err := p.readStored(ctx, c, e, name)
	if string(e.stored["kind"]) != `"namespace"` {
		e.table = slices.DeleteFunc(e.table, func(s spec.Setting) bool { return s.Name == "eventRetentionInDays" })
	}
	return e, err
}

// finishTopic leaves out what is not mapped.
func finishTopic(settings map[string]any) {
	settings[mapping] = orNull(settings[mapping])
	if object, mapped := settings[mapping].(map[string]any); mapped {
		object["inputSchemaMappingType"] = "Json"
	}
}

// keysView is what topic-keys.html shows; without keys it offers to show them.
type keysView struct{ Topic, Key1, Key2 string }

// topicKeys shows access keys after a click, and replaces one. Both are in the audit.
func (p *pages) topicKeys(c echo.Context) error {
	ctx, cancel := p.formContext(c)
	defer cancel()
	topic, err := p.parts.Topics.Get(ctx, c.Param("topic"))
	if err != nil {
		return err
	}
	view := keysView{Topic: topic.Name}
	if c.Request().Method == http.MethodPost {
		err = p.readKeys(ctx, c, &view)
	}
	return again(c, "", err, func() error {
		return p.Show(c, "topic-keys", "Access keys", false, view,
			site.Link{Href: "/ui/topics/" + topic.Name, Text: topic.Name})
	})
}

func (p *pages) readKeys(ctx context.Context, c echo.Context, view *keysView) error {
	f, err := postedForm(c)
	if err != nil {
		return err
	}
	path, body := apiTopic(view.Topic)+"/listKeys", []byte(nil)
	if name := f.get("regenerate"); name != "" {
		if !f.has("agreed") {
			return site.WrongForm("confirm that no publisher uses " + name + " any more, or that those that do may be rejected.")
		}
		path, body = apiTopic(view.Topic)+"/regenerateKey", fmt.Appendf(nil, `{"keyName":%s}`, textJSON(name))
	}
	answer, err := p.ask(ctx, c, http.MethodPost, path, body)
	if err != nil {
		return f.reject(err, "Nothing was done")
	}
	return answer.read(view)
}
