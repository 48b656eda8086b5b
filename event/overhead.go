package event

// Overhead returns how many bytes a delivery of an event may have more than the event as it was accepted: the members that
// AppendDelivery writes by itself, with their commas. It is an upper bound, reached by an event that has none of them; what
// decides how many events fit into one request need not read their bodies for it.
func Overhead(input, delivery Schema, topicName string) int {
	path := Envelope{Topic: topicName}.Path()
	var added []byte
	switch {
	case input == CloudEvents:
		return 0
	case delivery == CloudEvents:
		added = appendMember(added, false, "specversion", specVersion)
		added = appendMember(added, false, "source", path)
		added = appendMember(added, false, "datacontenttype", mediaJSON)
	default:
		added = appendMember(added, false, memberTopic, path)
		added = appendMember(added, false, memberMetadataVersion, metadataVersion)
	}
	return len(added)
}
