package event

import "time"

// readCustom fills e from the publisher's own JSON, where the topic's mapping says. The whole object is the event's
// data. Of a field it takes a string, or the digits of a number: an order's number is an id as good as any. The bounds
// are those of the Event Grid schema, to which the events will be converted. Source: Microsoft, Map custom fields to
// Event Grid schema, 2021-09-28; what a field may hold that page leaves open.
func readCustom(f *fields, in *Input, e *Event) (err *Error) {
	m := &in.Mapping.Properties
	if e.ID, err = f.identity(m.ID, in); err != nil {
		return err
	}
	if e.Subject, err = f.source("subject", m.Subject, requiredLongOrEmpty); err != nil {
		return err
	}
	if e.Type, err = f.source("eventType", m.EventType, required); err != nil {
		return err
	}
	if e.Time, err = f.moment(m.EventTime, in); err != nil {
		return err
	}
	if e.DataVersion, err = f.source("dataVersion", m.DataVersion, optionalOrEmpty); err != nil {
		return err
	}
	if m.Topic == nil {
		return nil
	}
	text, err := f.scalar(m.Topic.SourceField, optionalOrEmpty)
	if v := (Envelope{Topic: in.Topic}); err == nil && len(text) > 0 && !v.names(text) {
		return f.refuse(m.Topic.SourceField, "is the event's topic: must be absent, empty, %q or %q", v.Topic, v.Path())
	}
	return err
}

func (f *fields) identity(m *MappedField, in *Input) (string, *Error) {
	if m == nil {
		return in.NewID(), nil
	}
	text, err := f.demanded("id", m)
	return string(text), err
}

func (f *fields) moment(m *MappedField, in *Input) (time.Time, *Error) {
	if m == nil {
		return in.Now.UTC(), nil
	}
	text, err := f.demanded("eventTime", m)
	if err != nil {
		return time.Time{}, err
	}
	return f.parseTime(m.SourceField, text)
}

// demanded reads a field without a default, which the event must have.
func (f *fields) demanded(target string, m *MappedField) ([]byte, *Error) {
	text, err := f.scalar(m.SourceField, required)
	if err == nil && text == nil {
		err = f.missing(m.SourceField, target)
	}
	return text, err
}

// source reads a field that may have a default. Without either the member is "", which Validate allows dataVersion
// alone.
func (f *fields) source(target string, m *MappedFieldWithDefault, r rule) (string, *Error) {
	if m == nil {
		return "", nil
	}
	if m.SourceField != "" {
		text, err := f.scalar(m.SourceField, r)
		if err != nil || text != nil {
			return string(text), err
		}
	}
	switch {
	case m.DefaultValue != nil:
		return *m.DefaultValue, nil
	case r.required:
		return "", f.missing(m.SourceField, target)
	}
	return "", nil
}

func (f *fields) missing(field, target string) *Error {
	return f.refuse(field, "is required: inputSchemaMapping takes %s from it", target)
}

// scalar returns the text of a field, nil when it is absent or null.
func (f *fields) scalar(name string, r rule) ([]byte, *Error) {
	r.required = false
	value, ok := f.given(name)
	if !ok || value[0] == '"' {
		return f.text(name, r)
	}
	if value[0] != '-' && !isDigit(value[0]) {
		return nil, f.refuse(name, "must be a string or a number, is %s", kind(value[0]))
	}
	if problem := r.problem(value); problem != "" {
		return nil, f.refuse(name, "%s", problem)
	}
	return value, nil
}

// wholeTime is a time as Event Grid and CloudEvents write it, in UTC.
func wholeTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// appendMapped writes a custom event as an Event Grid event, the members in the order of Microsoft's sample.
func appendMapped(dst []byte, e *Event, path string) []byte {
	dst = append(dst, '{')
	dst = appendMember(dst, true, "id", e.ID)
	dst = appendMember(dst, false, "eventTime", wholeTime(e.Time))
	dst = appendMember(dst, false, "eventType", e.Type)
	dst = appendMember(dst, false, "dataVersion", e.DataVersion)
	dst = appendMember(dst, false, memberMetadataVersion, metadataVersion)
	dst = appendMember(dst, false, memberTopic, path)
	dst = appendMember(dst, false, "subject", e.Subject)
	dst = append(append(dst, `,"data":`...), e.Body...)
	return append(dst, '}')
}

// appendMappedCloudEvent writes a custom event as the CloudEvent that its Event Grid form would become.
func appendMappedCloudEvent(dst []byte, e *Event, path string) []byte {
	dst = append(dst, '{')
	dst = appendMember(dst, true, "specversion", specVersion)
	dst = appendMember(dst, false, "source", path)
	dst = appendMember(dst, false, "id", e.ID)
	dst = appendMember(dst, false, "type", e.Type)
	if e.Subject != "" {
		dst = appendMember(dst, false, "subject", e.Subject)
	}
	dst = appendMember(dst, false, "time", wholeTime(e.Time))
	if e.DataVersion != "" {
		dst = appendMember(dst, false, "dataversion", e.DataVersion)
	}
	dst = appendMember(dst, false, "datacontenttype", mediaJSON)
	dst = append(append(dst, `,"data":`...), e.Body...)
	return append(dst, '}')
}
