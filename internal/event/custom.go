package event

import "time"

// readCustom fills e from the fields that the topic's mapping names in the publisher's own JSON; the whole object is
// the event's data. A field is a string, or a number whose digits are the text, such as an order's number. The bounds
// are those of the Event Grid schema, into which the events may be converted. Source: Microsoft, Map custom fields to
// Event Grid schema, 2021-09-28, which does not say what a field may be.
func readCustom(f *fields, in *Input, e *Event) {
	m := &in.Mapping.Properties
	if e.Time = in.Now.UTC(); m.ID == nil {
		e.ID = in.NewID()
	} else {
		e.ID = string(f.requiredField("id", m.ID))
	}
	e.Subject = f.fieldOrDefault("subject", m.Subject, requiredLongOrEmpty)
	e.Type = f.fieldOrDefault("eventType", m.EventType, required)
	if m.EventTime != nil {
		e.Time = f.isoTime(m.EventTime.SourceField, f.requiredField("eventTime", m.EventTime))
	}
	e.DataVersion = f.fieldOrDefault("dataVersion", m.DataVersion, optionalOrEmpty)
	if m.Topic == nil {
		return
	}
	if text := f.scalar(m.Topic.SourceField, optionalOrEmpty); len(text) > 0 && !isTopic(text, in.Topic) {
		if e.Source = string(text); !in.AnyTopic {
			f.reject(m.Topic.SourceField, "is the event's topic: must be absent, empty, %q or %q", in.Topic,
				topicPath(in.Topic))
		}
	}
}

func (f *fields) requiredField(target string, m *MappedField) []byte {
	text := f.scalar(m.SourceField, optional)
	if text == nil {
		f.reject(m.SourceField, "is required: inputSchemaMapping reads %s from it", target)
	}
	return text
}

// fieldOrDefault reads a field that may have a default; "" if it has neither, which Validate allows for dataVersion.
func (f *fields) fieldOrDefault(target string, m *MappedFieldWithDefault, r rule) string {
	if m == nil {
		return ""
	}
	needed := r.required
	r.required = false
	if m.SourceField != "" {
		if text := f.scalar(m.SourceField, r); text != nil {
			return string(text)
		}
	}
	if m.DefaultValue != nil {
		return *m.DefaultValue
	}
	if needed {
		f.reject(m.SourceField, "is required: inputSchemaMapping reads %s from it", target)
	}
	return ""
}

// wholeTime is a time as Event Grid and CloudEvents write it, in UTC.
func wholeTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// appendMapped writes a custom event as an Event Grid event, the members in the order of Microsoft's sample.
func appendMapped(dst []byte, e *Event, path string) []byte {
	dst = appendMembers(append(dst, '{'), "id", e.ID, "eventTime", wholeTime(e.Time), "eventType", e.Type,
		memberDataVersion, e.DataVersion, memberMetadataVersion, metadataVersion, memberTopic, path, "subject", e.Subject)
	return append(append(append(dst, `,"data":`...), e.Body...), '}')
}

// appendMappedCloudEvent writes a custom event as the CloudEvent that its Event Grid form would become.
func appendMappedCloudEvent(dst []byte, e *Event, path string) []byte {
	dst = appendMembers(append(dst, '{'), "specversion", specVersion, "source", path, "id", e.ID, "type", e.Type)
	if e.Subject != "" {
		dst = appendMembers(dst, "subject", e.Subject)
	}
	dst = appendMembers(dst, "time", wholeTime(e.Time))
	if e.DataVersion != "" {
		dst = appendMembers(dst, "dataversion", e.DataVersion)
	}
	dst = appendMembers(dst, "datacontenttype", mediaJSON)
	return append(append(append(dst, `,"data":`...), e.Body...), '}')
}
