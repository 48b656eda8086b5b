package event

import (
	"slices"
	"strings"
)

// Mapping names the fields of a custom event that are its envelope: the property inputSchemaMapping of a topic, in
// Event Grid's form. A field is the path of a member of the published object, as the key of a filter: names with a dot
// between them, compared exactly. Source: Microsoft, Map custom fields to Event Grid schema, 2021-09-28; Azure REST
// API, Topics, 2022-06-15, JsonInputSchemaMapping, which leaves case and paths open.
type Mapping struct {
	// Type is the kind of mapping; "Json" is the only one.
	Type string `json:"inputSchemaMappingType"`
	// Properties are the fields, one for each member of the envelope.
	Properties MappingProperties `json:"properties"`
}

// MappingProperties names the field of each member of the envelope; nil for a member that is not mapped.
type MappingProperties struct {
	// ID is the field of the event's id. Not mapped: postrider creates one.
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

// MappedField is a field without a default: an event without it is rejected.
type MappedField struct {
	// SourceField is the field's path; 1 to 1,024 bytes.
	SourceField string `json:"sourceField"`
}

// MappedFieldWithDefault is a field, a default, or a field with a default for events that lack it.
type MappedFieldWithDefault struct {
	// SourceField is the field's path, up to 1,024 bytes; "" for none.
	SourceField string `json:"sourceField,omitempty"`
	// DefaultValue is used for events without the field; nil for none.
	DefaultValue *string `json:"defaultValue,omitempty"`
}

// MappingError is a mistake in a mapping. Field is the JSON path of the property from inputSchemaMapping on. Message
// continues it as a sentence. Both may be shown to the client.
type MappingError struct {
	Field   string
	Message string
}

// Error returns "field: message".
func (e *MappingError) Error() string { return e.Field + ": " + e.Message }

// Validate returns the first mistake in a mapping as a *MappingError. eventType and subject need a field or a default:
// the Event Grid schema requires them.
func (m *Mapping) Validate() error {
	const root = "inputSchemaMapping"
	if m.Type != "Json" {
		return &MappingError{root + ".inputSchemaMappingType", `must be "Json"`}
	}
	p := &m.Properties
	for _, f := range []struct {
		name  string
		field *MappedField
	}{{"id", p.ID}, {"topic", p.Topic}, {"eventTime", p.EventTime}} {
		if f.field != nil {
			if err := checkPath(root+".properties."+f.name+".sourceField", f.field.SourceField); err != nil {
				return err
			}
		}
	}
	for _, f := range []struct {
		name  string
		field *MappedFieldWithDefault
		value rule // of the default
	}{
		{"eventType", p.EventType, required},
		{"subject", p.Subject, requiredLongOrEmpty},
		{"dataVersion", p.DataVersion, optionalOrEmpty},
	} {
		if err := f.field.check(root+".properties."+f.name, f.value); err != nil {
			return err
		}
	}
	return nil
}

func checkPath(field, path string) error {
	if err := checkText(field, path, rule{min: 1, max: 1024}); err != nil {
		return err
	}
	if slices.Contains(strings.Split(path, "."), "") {
		return &MappingError{field, "must be names with a dot between them, none of them empty"}
	}
	return nil
}

func (f *MappedFieldWithDefault) check(path string, value rule) error {
	switch {
	case f == nil && value.required:
		return &MappingError{path, "is required: give a sourceField, a defaultValue or both"}
	case f == nil:
		return nil
	case f.SourceField == "" && f.DefaultValue == nil:
		return &MappingError{path, "must have a sourceField, a defaultValue or both"}
	}
	if f.SourceField != "" {
		if err := checkPath(path+".sourceField", f.SourceField); err != nil {
			return err
		}
	}
	if f.DefaultValue != nil {
		return checkText(path+".defaultValue", *f.DefaultValue, value)
	}
	return nil
}

func checkText(field, text string, r rule) error {
	if problem := r.problem([]byte(text)); problem != "" {
		return &MappingError{Field: field, Message: problem}
	}
	return nil
}
