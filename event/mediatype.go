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

// shape is what a body may be at its outermost level.
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

func (s shape) takes(first byte) bool {
	return first == '{' && s != eventArray || first == '[' && s != oneEvent
}

// accept maps a request's content type to the shape its body must have, or refuses it. Event Grid topics take
// application/json and, as curl users expect, no content type at all. CloudEvents topics take the two types of the
// CloudEvents JSON format, and application/json because early SDKs sent it; the outermost bracket then decides. Custom
// topics take one event too, where Event Grid wants an array: a webhook of someone else's, which is what they are for,
// cannot be told to send one.
func accept(schema Schema, contentType string) (shape, error) {
	media, ok := mediaType(contentType)
	switch {
	case !ok:
	case schema == EventGrid && (media == mediaJSON || media == ""):
		return eventArray, nil
	case schema == CloudEvents && media == mediaStructured:
		return oneEvent, nil
	case schema == CloudEvents && media == mediaBatch:
		return eventArray, nil
	case schema == CloudEvents && media == mediaJSON:
		return oneEventOrArray, nil
	case schema == Custom && (media == mediaJSON || media == ""):
		return oneEventOrArray, nil
	}
	takes := mediaJSON + " in utf-8"
	if schema == CloudEvents {
		takes = mediaStructured + ", " + mediaBatch + " or " + mediaJSON +
			" in utf-8, and any other type with the attributes in ce- headers"
	}
	return 0, refuse(statusUnsupportedMediaType, CodeUnsupportedMediaType,
		"content type %q is not accepted: a topic with input schema %s takes %s", shorten(contentType), schema, takes)
}

// mediaType returns the type without parameters; ok is false when it cannot be read or names a charset other than
// utf-8. What SDKs send is matched whole, because mime.ParseMediaType makes a map for the parameters at every request.
func mediaType(contentType string) (media string, ok bool) {
	switch contentType {
	case "", mediaJSON, mediaStructured, mediaBatch:
		return contentType, true
	case mediaJSON + utf8Parameter, mediaStructured + utf8Parameter, mediaBatch + utf8Parameter:
		return strings.TrimSuffix(contentType, utf8Parameter), true
	}
	media, parameters, err := mime.ParseMediaType(contentType)
	if err != nil {
		return "", false
	}
	charset, given := parameters["charset"]
	return media, !given || strings.EqualFold(charset, "utf-8")
}
