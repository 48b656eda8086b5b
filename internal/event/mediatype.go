package event

import (
	"mime"
	"strings"
)

// Media types of requests, and of deliveries after ContentType.
const (
	mediaJSON       = "application/json"
	mediaStructured = "application/cloudevents+json"
	mediaBatch      = "application/cloudevents-batch+json"
)

// shape is what a body may be: one event, or an array.
type shape int

const (
	oneEvent shape = iota
	eventArray
	oneEventOrArray
)

// String completes the sentence "expected ...".
func (s shape) String() string {
	switch s {
	case oneEvent:
		return "one event (an object)"
	case eventArray:
		return "an array of events"
	case oneEventOrArray:
		return "one event (an object) or an array of events"
	}
	return ""
}

// accept returns the shape that a body of this content type must have, or rejects the type. Topics of the Event Grid
// schema and custom topics read every body as JSON in UTF-8: curl and PowerShell send application/x-www-form-urlencoded
// in Event Grid's quick starts, and a charset has no effect on JSON (RFC 8259, section 11). They reject the types of
// CloudEvents only, which belong to another topic. Custom topics accept one event too, although Event Grid requires an
// array: other products' webhooks send no arrays.
func accept(schema Schema, contentType string) (shape, error) {
	switch {
	case schema == CloudEvents:
		switch mediaType(contentType) {
		case mediaStructured:
			return oneEvent, nil
		case mediaBatch:
			return eventArray, nil
		case mediaJSON:
			return oneEventOrArray, nil
		}
		return 0, reject(statusUnsupportedMediaType, CodeUnsupportedMediaType,
			"content type %q is not accepted: a topic with input schema %s takes %s, %s or %s in utf-8, and any other type "+
				"with the attributes in ce- headers", shorten(contentType), CloudEvents, mediaStructured, mediaBatch, mediaJSON)
	case isCloudEventsType(contentType):
		return 0, reject(statusUnsupportedMediaType, CodeUnsupportedMediaType,
			"content type %q is not accepted: a topic with input schema %s takes JSON; publish CloudEvents to a topic with "+
				"input schema %s", shorten(contentType), schema, CloudEvents)
	case schema == Custom:
		return oneEventOrArray, nil
	}
	return eventArray, nil
}

// structuredPrefix starts the media types of an event format, batches included. Source: CNCF, HTTP protocol binding
// 1.0.2, section 3.
const structuredPrefix = "application/cloudevents"

func isCloudEventsType(contentType string) bool {
	return len(contentType) >= len(structuredPrefix) &&
		strings.EqualFold(contentType[:len(structuredPrefix)], structuredPrefix)
}

// mediaType returns the type without parameters; "" if it cannot be read or names a charset that is not in UTF-8. What
// SDKs send is compared as a whole, because mime.ParseMediaType allocates a map for each request.
func mediaType(contentType string) string {
	switch contentType {
	case mediaJSON, mediaStructured, mediaBatch:
		return contentType
	case mediaJSON + utf8Parameter, mediaStructured + utf8Parameter, mediaBatch + utf8Parameter:
		return strings.TrimSuffix(contentType, utf8Parameter)
	}
	media, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || !isUTF8(parameters) {
		return ""
	}
	return media
}

// isUTF8 reports whether the parameters of a media type leave the charset to UTF-8, of which US-ASCII is a part.
func isUTF8(parameters map[string]string) bool {
	charset, given := parameters["charset"]
	return !given || strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "us-ascii")
}
