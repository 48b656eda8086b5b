package event

import (
	"fmt"
	"unicode/utf8"
)

// Codes of an Error, for the `code` of an error answer.
const (
	// CodeInvalidJSON: the body is not one JSON document in UTF-8, or nests too deep (400).
	CodeInvalidJSON = "InvalidJson"
	// CodeInvalidEvent: the JSON is sound, the envelope is not (400).
	CodeInvalidEvent = "InvalidEvent"
	// CodePayloadTooLarge: too many events, one that is too large, or a request body that is too large (413). The page
	// says "413 Payload Too Large" (Microsoft, Azure Event Grid event schema).
	CodePayloadTooLarge = "PayloadTooLarge"
	// CodeUnsupportedMediaType: the topic does not take this content type (415).
	CodeUnsupportedMediaType = "UnsupportedMediaType"
)

// wholeRequest is the Index of an error that belongs to no single event.
const wholeRequest = -1

// Error says why a publish request was refused. It is always the publisher's to mend and safe to show to them:
// of the request it repeats a member's name or the content type at most.
type Error struct {
	// Status is the HTTP status to answer with: 400, 413 or 415.
	Status int
	// Code is one of the Code constants.
	Code string
	// Index is the event's place in the request, from 0; -1 for the whole request. A lone CloudEvent has index 0.
	Index int
	// Field is the envelope member at fault, cut to 64 bytes; "" when there is none.
	Field string
	// Message is the whole sentence with place and field: "events[3].eventTime: not an RFC 3339 time".
	Message string
}

// Error returns Message.
func (e *Error) Error() string { return e.Message }

// refuse builds a request-wide Error.
func refuse(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Index: wholeRequest, Message: fmt.Sprintf(format, args...)}
}

// rejectEvent builds an Error about the event at index, and about one of its members unless field is "".
func rejectEvent(status int, code string, index int, field, format string, args ...any) *Error {
	field = shorten(field)
	place := fmt.Sprintf("events[%d]", index)
	if field != "" {
		place += "." + field
	}
	message := place + ": " + fmt.Sprintf(format, args...)
	return &Error{Status: status, Code: code, Index: index, Field: field, Message: message}
}

// shorten keeps a stranger's text from filling an answer or a log line: a member's name can be a megabyte long.
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
