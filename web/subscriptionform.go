package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/catalog"
	"postrider/catalog/spec"
	"postrider/event"
	"postrider/policy"
	"postrider/policy/filter"
	"postrider/web/display"
)

// The settings of an event subscription that are lists of rows.
const (
	filterList = "filter.advancedFilters"
	headerList = "deliveryAttributeMappings"
)

// subscriptionForm is the form of an event subscription: its settings, and what depends on its topic and on the retry
// policies.
type subscriptionForm struct {
	*editor
	topic    *catalog.Topic
	policies []*policy.Policy
	endpoint string // the part of the stored endpoint that is shown
	tester   filterTester
	lists    []rowList
	focus    string // the list to which a row was added
}

func (p *pages) newSubscription(c echo.Context) error {
	if c.QueryParam("topic") == "" {
		return p.chooseTopic(c)
	}
	return p.edit(p.openSubscription)(c)
}

// chooseView is what subscription-topic.html shows.
type chooseView struct{ Topics []string }

// choosable is how many topics can be chosen from. Each topic's page leads to the form, too.
const choosable = 500

// chooseTopic shows the topics that a new event subscription may be for: its form depends on the topic.
func (p *pages) chooseTopic(c echo.Context) error {
	ctx, cancel := p.formContext(c)
	defer cancel()
	topics, err := p.parts.Topics.List(ctx, "", choosable)
	if err != nil {
		return err
	}
	view := chooseView{}
	for _, topic := range topics {
		view.Topics = append(view.Topics, topic.Name)
	}
	return p.show(c, "subscription-topic", "New event subscription", false, view)
}

func (p *pages) openSubscription(ctx context.Context, c echo.Context) (*editor, error) {
	topicName, name := c.Param("topic"), c.Param("subscription")
	if name == "" {
		topicName = c.QueryParam("topic")
	}
	topic, err := p.parts.Topics.Get(ctx, topicName)
	if err != nil {
		return nil, err
	}
	back := "/ui/topics/" + topic.Name
	e := &editor{
		table: spec.Subscription, noun: "event subscription", name: name, method: http.MethodPatch,
		address: func(name string) string { return apiSubscription(topic.Name, name) },
		folded:  []string{spec.Delivery, spec.DeadLetters, spec.Connection, spec.Advanced},
		page:    "subscription-form", title: "New event subscription", action: "/ui/subscriptions/new?topic=" + topic.Name,
		back: back, trail: []link{{back, topic.Name}},
	}
	s := &subscriptionForm{editor: e, topic: topic, policies: p.parts.Cache.Snapshot().Policies()}
	s.lists = []rowList{s.advancedFilters(), s.headers()}
	e.own = map[string]ownForm{filterList: s.own(&s.lists[0]), headerList: s.own(&s.lists[1])}
	e.dependent, e.finish, e.saved = s.dependent, s.finish, s.saved
	e.press = func(ctx context.Context, c echo.Context) (bool, error) { return s.press(ctx, c, p) }
	if name == "" {
		return e, nil
	}
	sub, err := p.parts.Subscriptions.Get(ctx, topic.Name, name)
	if err != nil {
		return nil, err
	}
	e.back = subscriptionPath(topic.Name, name)
	e.action, e.title, e.trail = e.back+"/edit", "Edit "+name, append(e.trail, link{e.back, name})
	return e, s.load(sub)
}

// load takes over what is stored, without secrets.
func (s *subscriptionForm) load(sub *catalog.Subscription) error {
	settings := sub.SubscriptionSpec
	settings.DeliveryAttributes = slices.Clone(settings.DeliveryAttributes)
	for i := range settings.DeliveryAttributes {
		if header := &settings.DeliveryAttributes[i]; header.IsSecret {
			header.Value = nil
		}
	}
	text, err := plainJSON(settings)
	if err != nil {
		return fmt.Errorf("write the stored settings: %w", err)
	}
	s.stored, s.etag, s.endpoint = settingsIn(s.table, text), etagOf(sub.Version), sub.EndpointBaseURL
	s.stored["endpointBaseUrl"] = textJSON(s.endpoint) // shown if another user changes it
	return nil
}

// finish leaves out the location of a destination that has none, and groups of settings without a value.
func (s *subscriptionForm) finish(settings map[string]any) {
	if kind := s.form.get("deadLetterDestination.endpointType"); kind != "Blob" && kind != "StorageBlob" {
		put(settings, "deadLetterDestination.properties", nil)
	}
	orNull(settings)
}

// saved leads to the event subscription's page, which says what came of the handshake.
func (s *subscriptionForm) saved(name string, answer *apiAnswer) (href string, err error) {
	var saved struct{ ProvisioningState, EndpointValidation string }
	if err := answer.read(&saved); err != nil {
		return "", err
	}
	done := "saved"
	switch {
	case saved.ProvisioningState == "AwaitingManualAction":
		done = "awaiting"
	case saved.ProvisioningState == "Creating", saved.ProvisioningState == "Updating":
		done = "handshaking"
	case saved.EndpointValidation == string(catalog.ValidationRequired) && s.form.has("endpointUrl"):
		done = "validated"
	}
	return subscriptionPath(s.topic.Name, name) + "?done=" + done, nil
}

// dependent changes the fields that depend on the stored endpoint, the topic or the retry policy.
func (s *subscriptionForm) dependent(field *formField) {
	limits := s.policy()
	switch field.Name {
	case "endpointUrl":
		if s.name != "" {
			field.Label, field.Placeholder = "New URL", display.Visible(s.endpoint)
			field.Hint = "An empty field keeps the stored URL with its query. " + field.Hint
		}
	case "eventDeliverySchema":
		field.Options = field.Options[:1]
		for _, schema := range event.Deliveries(s.topic.InputSchema) {
			field.Options = append(field.Options, formOption{Value: string(schema), Text: string(schema)})
		}
	case "retryPolicy.policy":
		field.Kind, field.Options = kindSelect, options("", "default: "+field.Default)
		for _, p := range s.policies {
			text := p.Name + ": " + display.AttemptsAllowed(&p.DefaultMaxAttempts) + " within " + display.Span(p.DefaultTTL)
			field.Options = append(field.Options, formOption{Value: p.Name, Text: text})
		}
	case "retryPolicy.maxDeliveryAttempts":
		if limits != nil {
			field.Hint += fmt.Sprintf(" %s allows %d to %d.", limits.Name, limits.MinMaxAttempts, limits.MaxMaxAttempts)
		}
	case "retryPolicy.eventTimeToLiveInMinutes":
		if limits != nil {
			field.Hint += fmt.Sprintf(" %s allows %s to %s.", limits.Name, display.Span(limits.MinTTL),
				display.Span(limits.MaxTTL))
		}
		if days := s.topic.EventRetentionInDays; days > 0 {
			field.Hint += " The topic keeps events for " + display.Plural(days, "day") + "."
		}
	}
}

// policy is the retry policy that is selected; nil for the default.
func (s *subscriptionForm) policy() *policy.Policy {
	for _, p := range s.policies {
		if p.Name == s.form.get("retryPolicy.policy") {
			return p
		}
	}
	return nil
}

// press handles the buttons that add and remove rows, and the one that tests the filter.
func (s *subscriptionForm) press(ctx context.Context, c echo.Context, p *pages) (pressed bool, err error) {
	f := s.form
	for _, l := range s.lists {
		if f.get("add") == l.name {
			s.focus = l.name
			f.set(fmt.Sprintf("%s[%d].%s", l.name, f.rows(l.name), l.choice), "")
		}
		if row, _, ok := rowOf(l.name, f.get("remove")+"."); ok {
			f.removeRow(l.name, row)
		}
	}
	if f.has("add") || f.has("remove") {
		return true, nil
	}
	for _, l := range s.lists {
		f.dropEmptyRows(l.name, l.texts...)
	}
	if f.has("test") {
		return true, p.testFilter(ctx, c, s)
	}
	return false, nil
}

// rowList is a setting whose value is a list of rows.
type rowList struct {
	name, row, hint string
	choice          string   // the field of a row that always has a value
	texts           []string // the other fields; a row without any is left out
	fields          func(at string) []formField
	fill            func(at string, row json.RawMessage)
	value           func(at string) any
}

// own is the part of the form for a list.
func (s *subscriptionForm) own(l *rowList) ownForm {
	setting := spec.Find(s.table, l.name)
	at := func(row int) string { return fmt.Sprintf("%s[%d]", l.name, row) }
	return ownForm{
		fill: func(value json.RawMessage) {
			var rows []json.RawMessage
			_ = json.Unmarshal(value, &rows) // it is stored as a list
			for i, row := range rows {
				l.fill(at(i)+".", row)
			}
		},
		show: func(section *formSection) {
			section.List = &formList{
				Name: l.name, Title: setting.Label, Hint: setting.Help + " " + l.hint, Add: "Add " + strings.ToLower(l.row),
				Action: s.action, Part: section.ID, Mistakes: s.form.mistakes[l.name],
			}
			for i := range s.form.rows(l.name) {
				row := formRow{
					Title: l.row + " " + strconv.Itoa(i+1), Fields: s.form.fields(l.fields(at(i) + ".")...), Remove: at(i),
				}
				row.Fields[0].Focus = s.focus == l.name && i == s.form.rows(l.name)-1
				section.List.Rows = append(section.List.Rows, row)
			}
			if l.name == filterList {
				section.Tester = s.filterTester(section.ID)
			}
		},
		value: func() any {
			rows := []any{}
			for i := range s.form.rows(l.name) {
				rows = append(rows, l.value(at(i)+"."))
			}
			return rows
		},
	}
}

func (s *subscriptionForm) advancedFilters() rowList {
	var operators []string
	for _, name := range filter.Operators() {
		operators = append(operators, name, name)
	}
	return rowList{
		name: filterList, row: "Condition", choice: "operatorType", texts: []string{"key", "value"},
		hint: "One value per line, a range as “1, 10”; IsNullOrUndefined and IsNotNull take none. A line in quotation marks " +
			"is a JSON string.",
		fields: func(at string) []formField {
			return []formField{
				{Name: at + "key", Label: "Key", Kind: kindText, Placeholder: "data.total"},
				{Name: at + "operatorType", Label: "Operator", Kind: kindSelect, Options: options(operators...)},
				{Name: at + "value", Label: "Values", Kind: kindLines, Rows: 1, Placeholder: "one per line"},
			}
		},
		fill: func(at string, row json.RawMessage) {
			var a filter.AdvancedFilter
			_ = json.Unmarshal(row, &a) // it is stored as one
			s.form.set(at+"operatorType", a.OperatorType)
			s.form.set(at+"key", a.Key)
			s.form.set(at+"value", operandLines(&a))
		},
		value: func(at string) any { return s.form.advancedFilter(at) },
	}
}

// operandLines are the values of a condition, one per line.
func operandLines(a *filter.AdvancedFilter) string {
	values := a.Values
	if len(a.Value) > 0 {
		values = append([]json.RawMessage{a.Value}, values...)
	}
	lines := make([]string, len(values))
	for i, value := range values {
		var text string
		if json.Unmarshal(value, &text) == nil && value[0] == '"' {
			lines[i] = lineOf(text)
			continue
		}
		lines[i] = strings.Trim(string(value), "[]")
	}
	return strings.Join(lines, "\n")
}

// advancedFilter is one condition. Its operator decides how its lines are read.
func (f *form) advancedFilter(at string) map[string]any {
	operator := f.get(at + "operatorType")
	row := map[string]any{"operatorType": operator, "key": f.get(at + "key")}
	lines := f.lines(at + "value")
	switch {
	case strings.HasPrefix(operator, "Is"):
		if len(lines) > 0 {
			row["values"] = lines
		}
	case strings.HasPrefix(operator, "String"):
		row["values"] = lines
	case strings.HasPrefix(operator, "Bool"), strings.HasPrefix(operator, "NumberLess"),
		strings.HasPrefix(operator, "NumberGreater"):
		if len(lines) > 0 {
			row["value"] = operandOf(strings.Join(lines, "\n"))
		}
	default:
		values := []json.RawMessage{}
		for _, line := range lines {
			values = append(values, operandOf(line))
		}
		row["values"] = values
	}
	return row
}

// operandOf reads a number, true or false, or the two ends of a range.
func operandOf(line string) json.RawMessage {
	if line == "true" || line == "false" {
		return json.RawMessage(line)
	}
	if pair := "[" + strings.Trim(line, "[] ") + "]"; strings.Contains(line, ",") && json.Valid([]byte(pair)) {
		return json.RawMessage(pair)
	}
	return numberOf(line)
}

// The types of header in the form: the API's Static is two of them.
const (
	headerStatic  = "static"
	headerSecret  = "secret"
	headerDynamic = "dynamic"
)

func (s *subscriptionForm) headers() rowList {
	return rowList{
		name: headerList, row: "Header", choice: "type", texts: []string{"name", "properties"},
		hint: "A secret is not shown again: an empty value keeps it.",
		fields: func(at string) []formField {
			return []formField{
				{Name: at + "name", Label: "Header", Kind: kindText, Placeholder: "X-Team"},
				{Name: at + "type", Label: "Type", Kind: kindSelect, Options: options(headerStatic, "fixed value", headerSecret,
					"secret", headerDynamic, "field of the event")},
				{Name: at + "properties", Label: "Value", Kind: kindText, Placeholder: "billing, or data.system"},
			}
		},
		fill: func(at string, row json.RawMessage) {
			var h policy.DeliveryAttribute
			_ = json.Unmarshal(row, &h) // it is stored as one
			kind, value := headerStatic, display.OrEmpty(h.Value)
			switch {
			case h.Type == policy.AttributeDynamic:
				kind, value = headerDynamic, h.SourceField
			case h.IsSecret:
				kind = headerSecret
			}
			s.form.set(at+"name", h.Name)
			s.form.set(at+"type", kind)
			s.form.set(at+"properties", value)
		},
		value: func(at string) any {
			h := policy.DeliveryAttribute{Name: s.form.get(at + "name"), Type: policy.AttributeStatic}
			value := s.form.get(at + "properties")
			switch s.form.get(at + "type") {
			case headerDynamic:
				h.Type, h.SourceField = policy.AttributeDynamic, value
			case headerSecret:
				h.IsSecret = true
				if value != "" {
					h.Value = &value
				}
			default:
				h.Value = &value
			}
			return h
		},
	}
}
