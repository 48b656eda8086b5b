package event

// Members of the Event Grid schema that postrider writes if the publisher does not.
const (
	memberTopic           = "topic"
	memberMetadataVersion = "metadataVersion"
	memberDataVersion     = "dataVersion"
	// metadataVersion is the version of the envelope; "1" is the only one.
	metadataVersion = "1"
)

// readEventGrid fills e from an event in the Event Grid schema. It ignores unknown members. Source: Microsoft, Azure
// Event Grid event schema, 2023-05-24: id, subject, eventType and eventTime are required, data and dataVersion are not.
// The page does not say whether a subject may be empty; Event Grid's own validation event has an empty one.
func readEventGrid(f *fields, topic string, e *Event) {
	e.ID = f.str("id", required)
	e.Subject = f.str("subject", requiredLongOrEmpty)
	e.Type = f.str("eventType", required)
	e.Time = f.time("eventTime", required)
	e.DataVersion = f.str("dataVersion", optionalOrEmpty)
	// The same page: if included, topic and metadataVersion must match what the server writes.
	if text := f.text(memberTopic, optionalOrEmpty); len(text) > 0 && !isTopic(text, topic) {
		f.reject(memberTopic, "must be absent, empty, %q or %q", topic, TopicPath(topic))
	}
	if text := f.text(memberMetadataVersion, optionalOrEmpty); text != nil && string(text) != metadataVersion {
		f.reject(memberMetadataVersion, "must be absent or %q", metadataVersion)
	}
}
