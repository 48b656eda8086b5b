package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"postrider/internal/catalog/spec"
	"postrider/web/display"
	"postrider/web/form"
	"postrider/web/site"
)

// mappedMembers are the members of an event that an input mapping reads from the published object.
var mappedMembers = []struct {
	name, label string
	defaults    bool // it may have a default
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
		add(member.name+".sourceField", member.label, "Path of a member of the published object, for CustomEventSchema.")
		if member.defaults {
			add(member.name+".defaultValue", member.label+" default", "Value if the member is missing.")
		}
	}
	return slices.Concat(spec.Topic[:at], parts, spec.Topic[at+1:])
}

// mappedLine is a member of an event with its source.
type mappedLine struct{ Label, Field, Default string }

func (p *pages) openTopic(ctx context.Context, c echo.Context) (*editor, error) {
	const list = "/ui/topics"
	name, done := c.Param("topic"), "?done=topic-created"
	e := &editor{
		table: topicTable(), noun: "topic", name: name, address: apiTopic, method: http.MethodPut,
		folded: []string{spec.Mapping}, finish: finishTopic, trail: []display.Link{{Href: list, Text: "Topics"}},
		removed: list + "?done=topic-deleted",
		saved:   func(name string, _ *apiResponse) (string, error) { return list + "/" + name + done, nil },
		removal: func(ctx context.Context) (forbidden, canceled string, err error) {
			subs, err := p.Parts.Subscriptions.List(ctx, name, "", 1)
			if len(subs) > 0 {
				forbidden = "The topic has event subscriptions. Delete them first."
			}
			return forbidden, "", err
		},
	}
	if name == "" {
		return e, nil
	}
	done, e.trail = "?done=topic-saved", []display.Link{{Href: list + "/" + name, Text: name}}
	err := p.readStored(ctx, c, e, name)
	if string(e.stored["kind"]) != `"namespace"` {
		e.table = slices.DeleteFunc(e.table, func(s spec.Setting) bool { return s.Name == "eventRetentionInDays" })
	}
	return e, err
}

// finishTopic leaves out members that are not mapped.
func finishTopic(settings map[string]any) {
	settings[mapping] = form.OrNull(settings[mapping])
	if object, mapped := settings[mapping].(map[string]any); mapped {
		object["inputSchemaMappingType"] = "Json"
	}
}

// keysView: empty keys are hidden.
type keysView struct{ Topic, Key1, Key2 string }

// topicKeys shows the access keys after a click, or replaces one. The audit records both.
func (p *pages) topicKeys(ctx context.Context, c echo.Context) error {
	topic, err := p.Parts.Topics.Get(ctx, c.Param("topic"))
	if err != nil {
		return err
	}
	view := keysView{Topic: topic.Name}
	if c.Request().Method == http.MethodPost {
		err = p.readKeys(ctx, c, &view)
	}
	return site.Finish(c, "", err, func() error {
		return p.Show(c, "topic-keys", "Access keys", false, view,
			display.Link{Href: "/ui/topics/" + topic.Name, Text: topic.Name})
	})
}

func (p *pages) readKeys(ctx context.Context, c echo.Context, view *keysView) error {
	f := postedForm(c)
	path, body := apiTopic(view.Topic)+"/listKeys", []byte(nil)
	if name := f.Get("regenerate"); name != "" {
		if !f.Has("agreed") {
			return site.Rejected(http.StatusBadRequest, "confirm that no publisher uses "+name)
		}
		path, body = apiTopic(view.Topic)+"/regenerateKey", fmt.Appendf(nil, `{"keyName":%s}`, form.TextJSON(name))
	}
	response, err := p.request(ctx, c, http.MethodPost, path, body)
	if err != nil {
		return reject(f, err, "Nothing was done")
	}
	return response.read(view)
}
