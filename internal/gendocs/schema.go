package main

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"postrider/internal/catalog/spec"
	"postrider/internal/query"
	"postrider/policy"
	"postrider/server/api"
)

// schemaTags are the field tags that become members of a schema.
var schemaTags = []string{
	"format", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern", "default",
}

// schema is the schema of a type, with the tags of its field.
func (b *builder) schema(t reflect.Type, tag reflect.StructTag) *yaml.Node {
	nullable := t.Kind() == reflect.Pointer
	if nullable {
		t = t.Elem()
	}
	if strings.Contains(tag.Get("json"), ",omit") {
		nullable = false
	}
	if text, has := tag.Lookup("nullable"); has {
		nullable = text == "true"
	}
	if name := b.component(t, tag); name != "" {
		reference := referTo("schemas", name)
		if nullable {
			either := []*yaml.Node{reference, referTo("schemas", "JsonNull")}
			return mapping("anyOf", either, "x-go-type", name) // oapi-codegen would generate a type for anyOf
		}
		return reference
	}
	s := b.plain(t, tag)
	if nullable && find(s, "type") != nil { // null is valid without a type
		set(s, "nullable", true)
	}
	if words := query.ChoicesOf(tag); words != nil {
		values := node(words)
		for _, v := range values.Content {
			if v.Value == "=" { // reserved in YAML 1.1, which PyYAML reads
				v.Style = yaml.SingleQuotedStyle
			}
		}
		set(s, "enum", values)
	}
	for _, name := range schemaTags {
		if text, has := tag.Lookup(name); has {
			set(s, name, scalar(text))
		}
	}
	return s
}

var (
	timeType      = reflect.TypeFor[time.Time]()
	rawType       = reflect.TypeFor[json.RawMessage]()
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// jsonTypes are types with a form of their own in JSON, and the types of these.
var jsonTypes = map[reflect.Type]reflect.Type{
	reflect.TypeFor[policy.Seconds]():         reflect.TypeFor[float64](),
	reflect.TypeFor[policy.OptionalSeconds](): reflect.TypeFor[float64](),
	reflect.TypeFor[policy.Minutes]():         reflect.TypeFor[int](),
	reflect.TypeFor[policy.Holds]():           reflect.TypeFor[map[string]float64](),
}

// plain is the schema of a type that is no component.
func (b *builder) plain(t reflect.Type, tag reflect.StructTag) *yaml.Node {
	t = cmp.Or(jsonTypes[t], t)
	switch {
	case t == timeType:
		return mapping("type", "string", "format", "date-time")
	case t == rawType || t.Implements(jsonMarshaler):
		switch kind := tag.Get("type"); kind {
		case "":
			return mapping()
		case "array": // an array needs the schema of its items
			return mapping("type", kind, "items", mapping())
		default:
			return mapping("type", kind)
		}
	case t.Implements(textMarshaler):
		return mapping("type", "string")
	}
	switch t.Kind() {
	case reflect.Bool:
		return mapping("type", "boolean")
	case reflect.Int:
		return mapping("type", "integer")
	case reflect.Int64:
		return mapping("type", "integer", "format", "int64")
	case reflect.Float64:
		return mapping("type", "number", "format", "double")
	case reflect.String:
		return mapping("type", "string")
	case reflect.Slice:
		items := reflect.StructTag("")
		if name := tag.Get("items"); name != "" { // the component of raw JSON
			items = reflect.StructTag(fmt.Sprintf("schema:%q", name))
		}
		return mapping("type", "array", "items", b.schema(t.Elem(), items))
	case reflect.Map:
		return mapping("type", "object", "additionalProperties", b.schema(t.Elem(), ""))
	case reflect.Struct:
		s := mapping("type", "object")
		b.properties(s, t)
		return s
	default:
		b.problem("%s has no schema", t)
		return mapping()
	}
}

// component is the name of a type's component, "" for a type without one. The tag schema has precedence over the type's
// name. A component of the base is complete.
func (b *builder) component(t reflect.Type, tag reflect.StructTag) string {
	name := cmp.Or(tag.Get("schema"), schemaName(t))
	known := find(b.root, "components", "schemas", name)
	switch {
	case name == "", tag.Get("schema") == "" && (t == timeType || t == rawType):
		return ""
	case known != nil:
		return name
	case t.Kind() == reflect.String && schemaEnums[name] && t.PkgPath() != "":
	case t.Kind() != reflect.Struct || t.Implements(textMarshaler):
		return ""
	}
	schema := need(find(b.root, "components", "schemas"), name)
	text := b.comments.ofType(t)
	if text == "" {
		b.problem("type %s has no comment, which schema %s needs", t, name)
	}
	if t.Kind() == reflect.Struct {
		b.properties(set(schema, "description", text, "type", "object"), t)
	} else {
		set(schema, "description", text, "type", "string", "enum", strings.Split(tag.Get("enum"), ","))
	}
	return name
}

// schemaEnums are the components that are strings.
var schemaEnums = map[string]bool{"KeyScope": true, "UserRole": true}

// schemaNames are the names of components that differ from those of the types.
var schemaNames = map[string]string{
	"Audit": "AuditEntry", "Member": "BatchMember", "MemberPage": "BatchMemberPage", "Attempt": "DeliveryAttempt",
	"Cell": "StatusCell", "Properties": "DestinationProperties",
	"Scope": "KeyScope", "Role": "UserRole", "Saved": "SavedQuery",
	"SavedPage": "SavedQueryPage", "Column": "QueryColumn",
}

// schemaName is the name of a type's component.
func schemaName(t reflect.Type) string {
	name, page := t.Name(), ""
	if of, isList := strings.CutPrefix(name, "List["); isList {
		of = strings.TrimSuffix(of, "]")
		name, page = of[strings.LastIndex(of, ".")+1:], "Page"
	}
	name = strings.TrimSuffix(strings.TrimSuffix(name, "Line"), "Row")
	if settings, isSpec := strings.CutSuffix(name, "Spec"); isSpec {
		name = settings + "Settings"
	}
	name += page
	return cmp.Or(schemaNames[name], name)
}

// properties adds the members of a struct to a schema.
func (b *builder) properties(schema *yaml.Node, t reflect.Type) {
	list, required := mapping(), []string{}
	for _, field := range api.Members(t) {
		if field.Tag.Get("hidden") == "true" {
			continue
		}
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		tag := requestTag(schemaName(t), name, field.Tag)
		needed := !strings.HasPrefix(options, "omit")
		if text, has := tag.Lookup("required"); has {
			needed = text == "true"
		}
		if needed {
			required = append(required, name)
		}
		property := b.schema(field.Type, tag)
		if goType := find(property, "x-go-type"); goType != nil && needed {
			goType.Value = "*" + goType.Value // oapi-codegen makes optional members pointers
		}
		own := b.comments.ofField(t, field)
		refers := find(property, "$ref") != nil
		switch {
		case refers && own != "": // a reference has no siblings
			property = mapping("allOf", []*yaml.Node{property}, "description", own)
		case refers:
		case setting(schemaName(t), name, property):
		default:
			text := b.text(t, name, field)
			if text == "" {
				b.problem("member %s of %s has no comment", name, t)
			}
			set(property, "description", text)
		}
		set(list, name, property)
	}
	set(schema, "properties", list)
	if len(required) > 0 {
		set(schema, "required", required)
	}
}

// settingsOf are the tables of settings that describe schemas, and the path of the schema in the table.
var settingsOf = map[string]struct {
	table   []spec.Setting
	path    string
	request bool // it is a request's
}{
	"TopicSettings": {spec.Topic, "", true}, "Topic": {spec.Topic, "", false},
	"SubscriptionSettings": {spec.Subscription, "", true}, "Subscription": {spec.Subscription, "", false},
	"RetryPolicySettings": {spec.Subscription, "retryPolicy.", true},
	"Filter":              {spec.Subscription, "filter.", true}, "FilterView": {spec.Subscription, "filter.", false},
	"OAuth2": {spec.Subscription, "oauth2.", true}, "OAuth2View": {spec.Subscription, "oauth2.", false},
	"ClientCertificate":     {spec.Subscription, "clientCertificate.", true},
	"DeadLetterDestination": {spec.Subscription, "deadLetterDestination.", true},
	"DeadLetterProperties":  {spec.Subscription, "deadLetterDestination.properties.", true},
	"Destination":           {spec.Subscription, "destination.", true},
	"DestinationProperties": {spec.Subscription, "destination.properties.", true},
	"DeliveryRate":          {spec.Subscription, "deliveryRate.", true},
	"DeliveryConfiguration": {spec.Subscription, "deliveryConfiguration.", true},
	"QueueSettings":         {spec.Subscription, "deliveryConfiguration.queue.", true},
	"SigningSettings":       {spec.Subscription, "signing.", true}, "Signing": {spec.Subscription, "signing.", false},
	"Policy": {spec.Policy, "", true}, "Probation": {spec.Policy, "probation.", true},
}

// requestTag adds the tags required and nullable to the tag of a setting in a request: settings with a default are
// optional and may be null.
func requestTag(schema, member string, tag reflect.StructTag) reflect.StructTag {
	of := settingsOf[schema]
	s := spec.Find(of.table, of.path+member)
	switch {
	case !of.request:
		return tag
	case s != nil && s.Default == "":
		return `required:"true" ` + tag
	default:
		return `required:"false" nullable:"true" ` + tag
	}
}

// setting adds the description, choices and limits of a setting. It returns false if the property is no setting.
func setting(schema, member string, property *yaml.Node) bool {
	of := settingsOf[schema]
	s := spec.Find(of.table, of.path+member)
	if s == nil {
		return false
	}
	help := s.Text()
	if s.Default != "" {
		help += " Default: " + s.Default + "."
	}
	set(property, "description", help)
	if s.Choices != nil {
		choices := node(s.Choices)
		if find(property, "nullable") != nil {
			choices.Content = append(choices.Content, node(nil))
		}
		set(property, "enum", choices)
	}
	if s.Kind == spec.Whole || s.Kind == spec.Number {
		set(property, "minimum", s.Min)
		if s.Max > 0 {
			set(property, "maximum", s.Max)
		}
	}
	return true
}
