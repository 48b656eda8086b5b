package openapi

import (
	"cmp"
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"postrider/server/api"
)

// schemaTags are the field tags that the schema of a property or parameter has too.
var schemaTags = []string{
	"format", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern", "default",
}

// schema describes a type and the tags of a field that has it.
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
			either := node(map[string]any{"anyOf": []*yaml.Node{reference, referTo("schemas", "JsonNull")}})
			set(either, "x-go-type", node(name)) // oapi-codegen does not know that it is one of them
			return either
		}
		return reference
	}
	s := b.plain(t, tag)
	if nullable && find(s, "type") != nil { // without a type null is allowed anyway
		set(s, "nullable", node(true))
	}
	if words := tag.Get("enum"); words != "" {
		set(s, "enum", node(strings.Split(words, ",")))
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

// plain is the schema of a type without name in the document.
func (b *builder) plain(t reflect.Type, tag reflect.StructTag) *yaml.Node {
	of := func(kind string) *yaml.Node { return node(map[string]string{"type": kind}) }
	switch {
	case t == timeType:
		s := of("string")
		set(s, "format", node("date-time"))
		return s
	case t == rawType || t.Implements(jsonMarshaler):
		if kind := tag.Get("type"); kind != "" {
			return of(kind)
		}
		return &yaml.Node{Kind: yaml.MappingNode}
	case t.Implements(textMarshaler):
		return of("string")
	}
	switch t.Kind() {
	case reflect.Bool:
		return of("boolean")
	case reflect.Int:
		return of("integer")
	case reflect.Int64:
		s := of("integer")
		set(s, "format", node("int64"))
		return s
	case reflect.Float64:
		s := of("number")
		set(s, "format", node("double"))
		return s
	case reflect.String:
		return of("string")
	case reflect.Slice:
		s := of("array")
		set(s, "items", b.schema(t.Elem(), ""))
		return s
	case reflect.Map:
		s := of("object")
		set(s, "additionalProperties", b.schema(t.Elem(), ""))
		return s
	case reflect.Struct:
		s := of("object")
		b.properties(s, t)
		return s
	default:
		b.problem("%s has no schema", t)
		return of("object")
	}
}

// component is the name of the schema of a named type: that of the type, or of the tag schema; "" for a type that is
// described in its place. A schema that has a type in the texts is complete there.
func (b *builder) component(t reflect.Type, tag reflect.StructTag) string {
	name := cmp.Or(tag.Get("schema"), schemaName(t))
	text := find(b.root, "components", "schemas", name)
	switch {
	case name == "", tag.Get("schema") == "" && (t == timeType || t == rawType):
		return ""
	case text == nil && (t.Kind() != reflect.Struct || t.Implements(textMarshaler)):
		return ""
	case text == nil:
		b.problem("schema %s has no text", name)
		text = need(find(b.root, "components", "schemas"), name)
	}
	if find(text, "type") != nil {
		return name
	}
	set(text, "type", node("object"))
	if t.Kind() == reflect.Struct {
		b.properties(text, t)
	} else {
		set(text, "type", node("string"))
		set(text, "enum", node(strings.Split(tag.Get("enum"), ",")))
	}
	order(text, schemaOrder)
	return name
}

// schemaNames are the names in the document of types that have another one in Go.
var schemaNames = map[string]string{
	"Audit": "AuditEntry", "Member": "BatchMember", "MemberPage": "BatchMemberPage", "Attempt": "DeliveryAttempt",
	"PersonalKeySettings": "LoginSettings", "Scope": "KeyScope", "Role": "UserRole",
}

// schemaName is the name of a type in the document.
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

// properties adds the members of a struct to a schema whose properties are texts.
func (b *builder) properties(schema *yaml.Node, t reflect.Type) {
	texts := need(schema, "properties")
	list, required := &yaml.Node{Kind: yaml.MappingNode}, []string{}
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
			goType.Value = "*" + goType.Value // that of an optional member is a pointer anyway
		}
		text := find(texts, name)
		if text == nil && find(property, "$ref") == nil && !setting(schemaName(t), name, property) {
			b.problem("member %s of schema %s has no text", name, schemaName(t))
		}
		if text != nil {
			if find(property, "$ref") != nil { // which can stand alone only
				property = node(map[string]any{"allOf": []*yaml.Node{property}})
			}
			if text.Kind == yaml.ScalarNode {
				text = node(map[string]any{"description": text})
			}
			property.Content = append(property.Content, text.Content...)
		}
		set(list, name, property)
	}
	for name := range members(texts) {
		if find(list, name) == nil {
			b.problem("schema %s has no member %s, which has a text", schemaName(t), name)
		}
	}
	set(schema, "properties", list)
	if len(required) > 0 {
		set(schema, "required", node(required))
	}
}
