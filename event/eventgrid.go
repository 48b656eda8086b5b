package event

// Members of the Event Grid schema that the server writes when the publisher does not.
const (
	memberTopic           = "topic"
	memberMetadataVersion = "metadataVersion"
	memberDataVersion     = "dataVersion"
	// metadataVersion is the version of the envelope itself; "1" is the only one there ever was.
	metadataVersion = "1"
)

// readEventGrid fills e from an event in the Event Grid schema. Members it does not know are left alone. Source:
// Microsoft, Azure Event Grid event schema, 2023-05-24: id, subject, eventType and eventTime are required, data and
// dataVersion are not. Whether a subject may be empty the page leaves open; Event Grid's own validation event has an
// empty one.
func readEventGrid(f *fields, topic Envelope, e *Event) (err *Error) {
	if e.ID, err = f.str("id", required); err != nil {
		return err
	}
	if e.Subject, err = f.str("subject", requiredLongOrEmpty); err != nil {
		return err
	}
	if e.Type, err = f.str("eventType", required); err != nil {
		return err
	}
	if e.Time, err = f.time("eventTime", required); err != nil {
		return err
	}
	if e.DataVersion, err = f.str("dataVersion", optionalOrEmpty); err != nil {
		return err
	}
	return checkServerMembers(f, topic)
}

// checkServerMembers refuses a topic or metadataVersion that contradicts what the server would write: delivering it
// would tell the endpoint a falsehood, replacing it would change what was accepted. The same page: if included, they
// must match.
func checkServerMembers(f *fields, topic Envelope) *Error {
	text, err := f.text(memberTopic, optionalOrEmpty)
	if err != nil {
		return err
	}
	if len(text) > 0 && !topic.names(text) {
		return f.refuse(memberTopic, "must be absent, empty, %q or %q", topic.Topic, topic.Path())
	}
	text, err = f.text(memberMetadataVersion, optionalOrEmpty)
	if err != nil {
		return err
	}
	if text != nil && string(text) != metadataVersion {
		return f.refuse(memberMetadataVersion, "must be absent or %q", metadataVersion)
	}
	return nil
}
