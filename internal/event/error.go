package event

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Codes of an Error, for the `code` of an error response.
const (
	// CodeInvalidJSON: the body is not one JSON document in UTF-8, or is nested too deep (400).
	CodeInvalidJSON = "InvalidJson"
	// CodeInvalidEvent: the JSON is valid, the envelope is not (400).
	CodeInvalidEvent = "InvalidEvent"
	// CodePayloadTooLarge: too many events, or an event or a request body that is too large (413; Microsoft, Azure Event
	// Grid event schema).
	CodePayloadTooLarge = "PayloadTooLarge"
	// CodeUnsupportedMediaType: the topic does not accept this content type (415).
	CodeUnsupportedMediaType = "UnsupportedMediaType"
)

// wholeRequest is the Index of an error that belongs to no single event.
const wholeRequest = -1

// Error says why a publish request was rejected. It is the publisher's mistake and may be shown: of the request it
// repeats at most a member's name or the content type.
type Error struct {
	// Status is the HTTP status of the response: 400, 413 or 415.
	Status int
	// Code is one of the Code constants.
	Code string
	// Index is the event's index in the request; -1 for the whole request. A single CloudEvent has index 0.
	Index int
	// Field is the wrong envelope member, cut to 64 bytes; "" if there is none.
	Field string
	// Message is the sentence with index and field: "events[3].eventTime: not an RFC 3339 time".
	Message string
	// Offset is the index of the byte of the body at which the mistake is; 0 if it is no place in the body.
	Offset int
}

// Error returns Message.
func (e *Error) Error() string { return e.Message }

// About returns the message with another name for the event, such as "event".
func (e *Error) About(name string) string {
	return strings.Replace(e.Message, fmt.Sprintf("events[%d]", e.Index), name, 1)
}

// at returns the error with its place in the body.
func (e *Error) at(offset int) *Error {
	e.Offset = offset
	return e
}

// reject returns an Error about the whole request.
func reject(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Index: wholeRequest, Message: fmt.Sprintf(format, args...)}
}

// rejectEvent returns an Error about the event at index, and about one of its members unless field is "".
func rejectEvent(status int, code string, index int, field, format string, args ...any) *Error {
	field = shorten(field)
	path := fmt.Sprintf("events[%d]", index)
	if field != "" {
		path += "." + field
	}
	message := path + ": " + fmt.Sprintf(format, args...)
	return &Error{Status: status, Code: code, Index: index, Field: field, Message: message}
}

// shorten bounds publishers' texts in responses and logs: a member's name can be a megabyte long.
func shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	cut := most
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}
