package event

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"postrider/jsonscan"
)

// Mapping says which fields of a custom event are its envelope: the property inputSchemaMapping of a topic, in Event
// Grid's form. Fields are top-level members of the published object, named letter for letter; a dot in a name is part
// of the name. Source: Microsoft, Map custom fields to Event Grid schema, 2021-09-28; Azure REST API, Topics,
// 2022-06-15, JsonInputSchemaMapping, which leaves case and paths open.
type Mapping struct {
	// Type is the kind of mapping; "Json" is the only one.
	Type string `json:"inputSchemaMappingType"`
	// Properties are the fields, one for each member of the envelope.
	Properties MappingProperties `json:"properties"`
}

// MappingProperties names the field of each member of the envelope; nil for a member that is not mapped.
type MappingProperties struct {
	// ID is the field of the event's id. Not mapped: Event Grid makes one up.
	ID *MappedField `json:"id,omitempty"`
	// Topic is the field that names the topic. Not mapped: it is the topic published to.
	Topic *MappedField `json:"topic,omitempty"`
	// EventTime is the field of the event's time. Not mapped: it is the time of publishing.
	EventTime *MappedField `json:"eventTime,omitempty"`
	// EventType is the field of the event's type. It must be mapped.
	EventType *MappedFieldWithDefault `json:"eventType,omitempty"`
	// Subject is the field of the event's subject. It must be mapped.
	Subject *MappedFieldWithDefault `json:"subject,omitempty"`
	// DataVersion is the field of the version of the event's data. Not mapped: events have none.
	DataVersion *MappedFieldWithDefault `json:"dataVersion,omitempty"`
}

// MappedField is a field that has no default: an event without it is refused.
type MappedField struct {
	// SourceField is the field's name; 1 to 1,024 bytes.
	SourceField string `json:"sourceField"`
}

// MappedFieldWithDefault is a field, a default, or a field with a default for events that lack it.
type MappedFieldWithDefault struct {
	// SourceField is the field's name, up to 1,024 bytes; "" for none.
	SourceField string `json:"sourceField,omitempty"`
	// DefaultValue stands in for an absent field; nil for none.
	DefaultValue *string `json:"defaultValue,omitempty"`
}

// mappingType is the one value of inputSchemaMappingType.
const mappingType = "Json"

// mappingRoot is the property that Field of a MappingError starts with.
const mappingRoot = "inputSchemaMapping"

// MappingError says what is wrong with a mapping. Field is the JSON path of the property from inputSchemaMapping on,
// Message a phrase that reads on from it; both may be shown to the caller.
type MappingError struct {
	Field   string
	Message string
}

// Error returns "field: message".
func (e *MappingError) Error() string { return e.Field + ": " + e.Message }

func rejectMapping(field, format string, args ...any) *MappingError {
	return &MappingError{Field: field, Message: fmt.Sprintf(format, args...)}
}

// fieldName bounds a field's name: those of an envelope string.
var fieldName = rule{min: 1, max: 1024}

// Validate reports the first thing wrong with a mapping as a *MappingError. eventType and subject need a field or a
// default: the Event Grid schema requires them and nobody can make them up.
func (m *Mapping) Validate() error {
	if m.Type != mappingType {
		return rejectMapping(mappingRoot+".inputSchemaMappingType", "must be %q", mappingType)
	}
	for _, c := range m.Properties.all() {
		if err := c.check(); err != nil {
			return err
		}
	}
	return nil
}

// mapped is one member of the envelope with what its mapping may be.
type mapped struct {
	name        string
	field       *MappedField
	withDefault *MappedFieldWithDefault
	required    bool
	value       rule // of the default
}

func (p *MappingProperties) all() [6]mapped {
	return [6]mapped{
		{name: "id", field: p.ID},
		{name: "topic", field: p.Topic},
		{name: "eventTime", field: p.EventTime},
		{name: "eventType", withDefault: p.EventType, required: true, value: required},
		{name: "subject", withDefault: p.Subject, required: true, value: requiredLongOrEmpty},
		{name: "dataVersion", withDefault: p.DataVersion, value: optionalOrEmpty},
	}
}

func (c *mapped) check() error {
	path := mappingRoot + ".properties." + c.name
	switch {
	case c.field != nil:
		return checkText(path+".sourceField", c.field.SourceField, fieldName)
	case c.withDefault == nil && c.required:
		return rejectMapping(path, "is required: give a sourceField, a defaultValue or both")
	case c.withDefault == nil:
		return nil
	case c.withDefault.SourceField == "" && c.withDefault.DefaultValue == nil:
		return rejectMapping(path, "must have a sourceField, a defaultValue or both")
	}
	if c.withDefault.SourceField != "" {
		if err := checkText(path+".sourceField", c.withDefault.SourceField, fieldName); err != nil {
			return err
		}
	}
	if c.withDefault.DefaultValue != nil {
		return checkText(path+".defaultValue", *c.withDefault.DefaultValue, c.value)
	}
	return nil
}

func checkText(field, text string, r rule) error {
	if problem := r.problem([]byte(text)); problem != "" {
		return rejectMapping(field, "%s", problem)
	}
	return nil
}

// UnmarshalJSON reads a mapping strictly: names letter for letter, none that is unknown or there twice. null is an
// absent property, which clients send. Errors are *MappingError. What was read may still not pass Validate.
func (m *Mapping) UnmarshalJSON(text []byte) error {
	text = bytes.TrimSpace(text)
	switch {
	case string(text) == "null":
		return nil
	case len(text) == 0 || !utf8.Valid(text):
		return rejectMapping(mappingRoot, "is not one JSON object in UTF-8")
	}
	top, err := readMembers(mappingRoot, text, "inputSchemaMappingType", "properties")
	if err != nil {
		return err
	}
	var read Mapping
	if given, err := top.string("inputSchemaMappingType"); err != nil {
		return err
	} else if given != nil {
		read.Type = *given
	}
	if value, ok := top.given("properties"); ok {
		if err := read.Properties.read(top.path+".properties", value); err != nil {
			return err
		}
	}
	*m = read
	return nil
}

func (p *MappingProperties) read(path string, text []byte) error {
	f, err := readMembers(path, text, "id", "topic", "eventTime", "eventType", "subject", "dataVersion")
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name   string
		target **MappedField
	}{{"id", &p.ID}, {"topic", &p.Topic}, {"eventTime", &p.EventTime}} {
		if *c.target, err = f.field(c.name); err != nil {
			return err
		}
	}
	for _, c := range []struct {
		name   string
		target **MappedFieldWithDefault
	}{{"eventType", &p.EventType}, {"subject", &p.Subject}, {"dataVersion", &p.DataVersion}} {
		if *c.target, err = f.fieldWithDefault(c.name); err != nil {
			return err
		}
	}
	return nil
}

// settings are the members of one object of a mapping.
type settings struct {
	fields
	path string
}

// readMembers reads an object that has no members but the known ones.
func readMembers(path string, text []byte, known ...string) (*settings, error) {
	if text[0] != '{' {
		return nil, rejectMapping(path, "must be an object")
	}
	members, _, problem := readObject(text, DefaultLimits().MaxDepth, nil)
	if problem != "" {
		return nil, rejectMapping(path, "is not one JSON object: %s", problem)
	}
	f := &settings{fields: fields{src: text, members: members}, path: path}
	if twice := decodeNames(f.members); twice != nil {
		return nil, rejectMapping(path+"."+shorten(string(twice)), "appears twice")
	}
	for _, m := range f.members {
		if !slices.Contains(known, string(m.name)) {
			return nil, rejectMapping(path+"."+shorten(string(m.name)), "is unknown: there are %s", strings.Join(known, ", "))
		}
	}
	return f, nil
}

func (f *settings) string(name string) (*string, error) {
	value, ok := f.given(name)
	if !ok {
		return nil, nil //nolint:nilnil // an absent property is no error
	}
	if value[0] != '"' {
		return nil, rejectMapping(f.path+"."+name, "must be a string, is %s", kind(value[0]))
	}
	text, lone := jsonscan.Unescape(value[1 : len(value)-1])
	if lone {
		return nil, rejectMapping(f.path+"."+name, "must not contain a lone surrogate")
	}
	s := string(text)
	return &s, nil
}

func (f *settings) field(name string) (*MappedField, error) {
	value, ok := f.given(name)
	if !ok {
		return nil, nil //nolint:nilnil // an absent property is no error
	}
	inner, err := readMembers(f.path+"."+name, value, "sourceField")
	if err != nil {
		return nil, err
	}
	source, err := inner.string("sourceField")
	if source == nil {
		return &MappedField{}, err
	}
	return &MappedField{SourceField: *source}, nil
}

func (f *settings) fieldWithDefault(name string) (*MappedFieldWithDefault, error) {
	value, ok := f.given(name)
	if !ok {
		return nil, nil //nolint:nilnil // an absent property is no error
	}
	inner, err := readMembers(f.path+"."+name, value, "sourceField", "defaultValue")
	if err != nil {
		return nil, err
	}
	read := &MappedFieldWithDefault{}
	if source, err := inner.string("sourceField"); err != nil {
		return nil, err
	} else if source != nil {
		read.SourceField = *source
	}
	read.DefaultValue, err = inner.string("defaultValue")
	return read, err
}
