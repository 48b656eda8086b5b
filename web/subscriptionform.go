package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/internal/catalog"
	"postrider/internal/catalog/spec"
	"postrider/internal/destination"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/filter"
	"postrider/internal/jsonscan"
	"postrider/web/display"
	"postrider/web/form"
	"postrider/web/site"
)

// The settings of an event subscription with rows.
const (
	filterList = "filter.advancedFilters"
	headerList = "deliveryAttributeMappings"
)

// subscriptionForm is the form of an event subscription. Some fields depend on its topic and on the retry policies.
type subscriptionForm struct {
	*editor
	pages    *pages
	topic    *catalog.Topic
	endpoint string          // the stored endpoint without its query, or the target of another destination
	secrets  map[string]bool // the names of the stored secrets of the destination
	was      destination.Type
	tester   filterTester
}

func (p *pages) newSubscription(ctx context.Context, c echo.Context) error {
	if c.QueryParam("topic") == "" {
		topics, err := p.Parts.Topics.List(ctx, "", choosable)
		if err != nil {
			return err
		}
		view := chooseView{}
		for _, topic := range topics {
			view.Topics = append(view.Topics, topic.Name)
		}
		return p.Show(c, "subscription-topic", "New event subscription", false, view)
	}
	return p.edit(p.openSubscription)(ctx, c)
}

type chooseView struct{ Topics []string }

// choosable is the number of topics in the list. The page of each topic has a link to the form, too.
const choosable = 500

func (p *pages) openSubscription(ctx context.Context, c echo.Context) (*editor, error) {
	topicName, name := c.Param("topic"), c.Param("subscription")
	if name == "" {
		topicName = c.QueryParam("topic")
	}
	topic, err := p.Parts.Topics.Get(ctx, topicName)
	if err != nil {
		return nil, err
	}
	parent := "/ui/topics/" + topic.Name
	e := &editor{
		table: settingsOn(topic.Name), noun: "event subscription", name: name, method: http.MethodPatch,
		address: func(name string) string { return apiTopic(topic.Name) + "/subscriptions/" + url.PathEscape(name) },
		folded:  []string{spec.Delivery, spec.DeadLetters, spec.Connection, spec.Advanced},
		lists:   []rowList{advancedFilters(), headers()}, trail: []display.Link{{Href: parent, Text: topic.Name}},
		removed: parent + "?done=deleted",
	}
	s := &subscriptionForm{editor: e, pages: p, topic: topic}
	e.dependent, e.finish, e.saved, e.test = s.dependent, s.finish, s.saved, s.testFilter
	e.ofKind = []string{"endpointValidation"}
	e.kind, e.has = typeSetting, func(s *spec.Setting, kind string) bool {
		return s.Of == nil || slices.Contains(s.Of, cmp.Or(destination.Type(kind), destination.WebHook))
	}
	if name == "" {
		return e, nil
	}
	sub, err := p.Parts.Subscriptions.Get(ctx, topic.Name, name)
	if err != nil {
		return nil, err
	}
	e.removal = func(ctx context.Context) (forbidden, canceled string, err error) {
		details, err := p.Parts.Reader.ReadSubscriptionDetails(ctx, sub, time.Hour, time.Minute)
		if err != nil {
			return "", "", err
		}
		return "", display.AtMost(details.Pending, 10_000), nil
	}
	e.trail = append(e.trail, display.Link{Href: subscriptionPath(topic.Name, name), Text: name})
	return e, s.load(sub)
}

// settingsOn are the settings of an event subscription on a topic. Messages exist only on postrider.system.
func settingsOn(topic string) []spec.Setting {
	if topic == catalog.SystemTopic {
		return spec.Subscription
	}
	return slices.DeleteFunc(slices.Clone(spec.Subscription), func(s spec.Setting) bool {
		return s.Section == spec.Messages
	})
}

// load reads the stored settings without secrets.
func (s *subscriptionForm) load(sub *catalog.Subscription) error {
	settings := sub.Stated
	settings.DeliveryAttributes = slices.Clone(settings.DeliveryAttributes)
	for i := range settings.DeliveryAttributes {
		if header := &settings.DeliveryAttributes[i]; header.IsSecret {
			header.Value = nil
		}
	}
	text, err := jsonscan.Encode(settings)
	if err != nil {
		return fmt.Errorf("write the stored settings: %w", err)
	}
	s.stored, s.etag, s.endpoint = form.SettingsIn(s.table, text), sub.Version.String(), sub.EndpointBaseURL
	s.was, s.secrets = sub.Destination.Type(), map[string]bool{}
	for name := range sub.Destination.SecretsByName() {
		s.secrets[propertiesSetting+"."+name] = true
	}
	s.stored["endpointBaseUrl"] = form.TextJSON(s.endpoint) // for the changes by another user
	return nil
}

const (
	typeSetting       = "destination.endpointType"
	propertiesSetting = "destination.properties"

	modeSetting = "deliveryConfiguration.deliveryMode"
	rateLimit   = "deliveryRate.limit"
)

// finish leaves out the location of a destination without one, settings of the other delivery mode, and groups of
// settings without values.
func (s *subscriptionForm) finish(settings map[string]any) {
	if kind := s.Get("deadLetterDestination.endpointType"); kind != "Blob" && kind != "StorageBlob" {
		form.Put(settings, "deadLetterDestination.properties", nil)
	}
	if s.Get(modeSetting) == string(catalog.ModeQueue) {
		s.dropStored(settings, spec.OfRequests)
	} else {
		s.dropStored(settings, func(of *spec.Setting) bool { return of.Section == spec.Mode && of.Name != modeSetting })
	}
	reformatted := s.Get("messageFormat") != strings.Trim(string(s.stored["messageFormat"]), `"`)
	moved := s.Has("endpointUrl") && s.kindIs(s.was)
	if stored := s.stored["endpointValidation"]; (moved || reformatted) && s.name != "" &&
		string(stored) == string(form.TextJSON(s.Get("endpointValidation"))) {
		delete(settings, "endpointValidation") // it is for the stored endpoint and format
	}
	if !s.Has(rateLimit) { // the defaults alone are no limit
		for i := range s.table {
			name := s.table[i].Name
			if strings.HasPrefix(name, "deliveryRate.") && s.Get(name) == s.table[i].Default {
				form.Put(settings, name, nil)
			}
		}
	}
	if tls := propertiesSetting + ".tls"; s.stored[tls] == nil && s.Get(tls) == "true" {
		form.Put(settings, tls, nil) // the default
	}
	to, _ := settings["destination"].(map[string]any)
	properties := to["properties"]
	form.OrNull(settings)
	if to["endpointType"] != nil {
		to["properties"] = properties // with null for each that is not set, so that the API names those that are missing
	}
}

// kindIs reports whether the form is for a type of destination.
func (s *subscriptionForm) kindIs(kind destination.Type) bool {
	return cmp.Or(destination.Type(s.Get(typeSetting)), destination.WebHook) == kind
}

// dropStored removes settings of the other delivery mode that the user left as they were. The API rejects those that
// were entered.
func (s *subscriptionForm) dropStored(settings map[string]any, ofOtherMode func(*spec.Setting) bool) {
	text := jsonscan.MustEncode(settings)
	for i := range s.table {
		setting := &s.table[i]
		value := spec.At(text, setting.Name)
		if stored := s.stored[setting.Name]; ofOtherMode(setting) &&
			(value == nil || string(value) == string(stored) || stored == nil && string(value) == setting.Default) {
			form.Put(settings, setting.Name, nil)
		}
	}
}

// saved continues at the event subscription's page, which shows the result of the handshake.
func (s *subscriptionForm) saved(name string, response *apiResponse) (href string, err error) {
	var saved struct{ ProvisioningState, EndpointValidation string }
	if err := response.read(&saved); err != nil {
		return "", err
	}
	done := "saved"
	switch {
	case saved.ProvisioningState == "AwaitingManualAction":
		done = "awaiting"
	case saved.ProvisioningState == "Creating", saved.ProvisioningState == "Updating":
		done = "handshaking"
	case saved.EndpointValidation == string(catalog.ValidationRequired) && s.Has("endpointUrl"):
		done = "validated"
	}
	return subscriptionPath(s.topic.Name, name) + "?done=" + done, nil
}

// dependent changes fields that depend on the stored endpoint, the topic or the retry policies.
func (s *subscriptionForm) dependent(section *formSection, field *form.Field) {
	if s.name == "" || strings.HasPrefix(field.Name, propertiesSetting) {
		field.Hint, _, _ = strings.Cut(field.Hint, " Default: the stored one")
	}
	switch field.Name {
	case typeSetting:
		field.Hint = "What receives the events. It decides which settings there are."
		field.Options[0] = form.Option{Text: destination.WebHook.Words()}
		field.Options = slices.Delete(field.Options, 1, 2)
		for i := range field.Options[1:] {
			option := &field.Options[i+1]
			option.Text = destination.Type(option.Value).Words()
		}
	case "endpointUrl":
		if s.endpoint != "" && s.was == destination.WebHook {
			field.Label, field.Placeholder = "New URL", display.Visible(s.endpoint)
			field.Hint = "Leave empty to keep the stored URL with its query. " + field.Hint
		}
	case modeSetting:
		if s.topic.InputSchema != event.CloudEvents {
			field.Options = field.Options[:2]
			field.Hint = "Queue (pull delivery) requires a topic whose input schema is " + string(event.CloudEvents) + "."
		}
	case rateLimit:
		field.Hint += " For no limit, clear the rate's other settings, too."
	case "eventDeliverySchema":
		field.Options = field.Options[:1]
		for _, schema := range event.Deliveries(s.topic.InputSchema) {
			field.Options = append(field.Options, form.Option{Value: string(schema), Text: string(schema)})
		}
	case "retryPolicy.policy":
		field.Kind, field.Options = form.KindSelect, []form.Option{{Value: "", Text: "default"}}
		for _, p := range s.pages.Parts.Cache.Snapshot().Policies() {
			text := fmt.Sprintf("%s: %d to %d attempts within %s to %s", p.Name, p.MaxAttempts.Least, p.MaxAttempts.Most,
				display.Span(time.Duration(p.TTL.Least)), display.Span(time.Duration(p.TTL.Most)))
			field.Options = append(field.Options, form.Option{Value: p.Name, Text: text})
		}
	case filterList:
		section.Tester = s.filterTester(section.ID)
	}
	if kind := destination.Type(s.Get(typeSetting)); kind != "" {
		field.ForDestination(kind, s.secrets[field.Name] && kind == s.was)
		if field.Name == headerList {
			s.list(headerList).row = form.AttributeLabel(kind)
		}
	}
}

func advancedFilters() rowList {
	var operators []form.Option
	for _, name := range filter.Operators() {
		operators = append(operators, form.Option{Value: name, Text: name})
	}
	return rowList{
		name: filterList, row: "Condition",
		hint: "Enter one value per line, a range as “1, 10”. IsNullOrUndefined and IsNotNull have no values. A line in " +
			"quotation marks is a JSON string.",
		fields: func(_ *form.Input, at string) []form.Field {
			return []form.Field{
				{Name: at + "key", Label: "Key", Kind: form.KindText, Placeholder: "data.total"},
				{Name: at + "operatorType", Label: "Operator", Kind: form.KindSelect, Options: operators},
				{Name: at + "value", Label: "Values", Kind: form.KindLines, Rows: 1, Placeholder: "one per line"},
			}
		},
		write: func(f *form.Input, at string, row json.RawMessage) {
			var a filter.AdvancedFilter
			_ = json.Unmarshal(row, &a) // it is always valid
			f.Set(at+"operatorType", a.OperatorType)
			f.Set(at+"key", a.Key)
			if a.Value != nil {
				a.Values = slices.Insert(a.Values, 0, a.Value)
			}
			lines := make([]string, len(a.Values))
			for i, value := range a.Values {
				lines[i] = form.OperandText(value)
			}
			f.Set(at+"value", strings.Join(lines, "\n"))
		},
		read: func(f *form.Input, at string) any { return f.AdvancedFilter(at) },
	}
}

// The types of header in the form: static and secret are both the API's Static.
const (
	headerStatic  = "static"
	headerSecret  = "secret"
	headerDynamic = "dynamic"
)

func headers() rowList {
	return rowList{
		name: headerList, row: "Header",
		hint: "A secret is never shown again. Leave it empty to keep the stored value.",
		fields: func(f *form.Input, at string) []form.Field {
			label := form.AttributeLabel(destination.Type(f.Get(typeSetting)))
			return []form.Field{
				{Name: at + "name", Label: label, Kind: form.KindText, Placeholder: "X-Team"},
				{Name: at + "type", Label: "Type", Kind: form.KindSelect, Options: []form.Option{
					{Value: headerStatic, Text: "static"},
					{Value: headerSecret, Text: "secret"},
					{Value: headerDynamic, Text: "event field"},
				}},
				{
					Name: at + "properties", Label: "Value", Kind: form.KindText, Placeholder: "billing, or data.system",
					Secret: f.Get(at+"type") == headerSecret,
				},
			}
		},
		write: func(f *form.Input, at string, row json.RawMessage) {
			var h endpointconf.DeliveryAttribute
			_ = json.Unmarshal(row, &h) // it is always valid
			kind, value := headerStatic, display.OrEmpty(h.Value)
			switch {
			case h.Type == endpointconf.AttributeDynamic:
				kind, value = headerDynamic, h.SourceField
			case h.IsSecret:
				kind = headerSecret
			}
			f.Set(at+"name", h.Name)
			f.Set(at+"type", kind)
			f.Set(at+"properties", value)
		},
		read: func(f *form.Input, at string) any {
			h := endpointconf.DeliveryAttribute{Name: f.Get(at + "name"), Type: endpointconf.AttributeStatic}
			value := f.Get(at + "properties")
			switch f.Get(at + "type") {
			case headerDynamic:
				h.Type, h.SourceField = endpointconf.AttributeDynamic, value
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

// filterTester is the part of the form that tests its filter.
type filterTester struct {
	Action, Part string
	Event        form.Field
	Open         bool
	Done, Focus  bool
	Entered      bool // the user entered the event
	Rejected     string
	Matched      int
	Results      []filterResult
}

// filterResult is the result of the filter for one event.
type filterResult struct {
	ID      string
	Matched bool
	Clauses []filter.Clause
}

func (s *subscriptionForm) filterTester(part string) *filterTester {
	t := s.tester
	t.Action, t.Part = s.action, part
	t.Event = s.Fields(form.Field{
		Name: "event", Label: "One event", Kind: form.KindJSON, Rows: 4, Wide: true, Hint: "In the schema of the topic, " +
			string(s.topic.InputSchema) + ". If empty, the topic’s last 50 events. Nothing is stored or delivered.",
	})[0]
	t.Open = t.Done || len(t.Event.Mistakes) > 0
	return &t
}

// testFilter tests the filter of the form without saving it.
func (s *subscriptionForm) testFilter(ctx context.Context, c echo.Context) error {
	const rejected = "The filter was not tested"
	settings, _ := s.settings()
	request := map[string]any{"filter": settings["filter"]}
	if entered := s.Get("event"); entered != "" {
		s.tester.Entered = true
		request["event"] = json.RawMessage(entered)
		if !json.Valid([]byte(entered)) {
			s.Mistake("event", "The event must be one JSON document.")
			return &site.RejectionError{Status: http.StatusBadRequest, Text: rejected + "."}
		}
	}
	body, err := jsonscan.Encode(request)
	if err != nil {
		return fmt.Errorf("write the filter: %w", err)
	}
	response, err := s.pages.request(ctx, c, http.MethodPost, apiTopic(s.topic.Name)+"/testFilter", body)
	if err != nil {
		err = s.rejected(err, rejected)
		var rejection *site.RejectionError
		if delete(s.Mistakes, ""); len(s.Mistakes) == 0 && errors.As(err, &rejection) {
			s.tester.Done, s.tester.Rejected = true, rejection.Text // only this part of the page changes
		}
		return err
	}
	var tested struct{ Value []filterResult }
	if err := response.read(&tested); err != nil {
		return err
	}
	s.tester.Done, s.tester.Focus, s.tester.Results = true, true, tested.Value
	for _, result := range tested.Value {
		if result.Matched {
			s.tester.Matched++
		}
	}
	return nil
}
