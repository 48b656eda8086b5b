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

func (s shape) takes(first byte) bool {
	return first == '{' && s != eventArray || first == '[' && s != oneEvent
}

// accept returns the shape that a body of this content type must have, or rejects the type. Event Grid topics accept
// application/json and, for curl, no content type. CloudEvents topics accept the two types of the CloudEvents JSON
// format, and application/json, which early SDKs sent. Custom topics accept one event too, although Event Grid requires
// an array: other products' webhooks send no arrays.
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
	return 0, reject(statusUnsupportedMediaType, CodeUnsupportedMediaType,
		"content type %q is not accepted: a topic with input schema %s takes %s", shorten(contentType), schema, takes)
}

// mediaType returns the type without parameters; ok is false if it cannot be read or names a charset other than utf-8.
// What SDKs send is compared as a whole, because mime.ParseMediaType allocates a map for each request.
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
