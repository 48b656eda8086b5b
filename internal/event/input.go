package event

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Input describes a topic's publish request before its body is read.
type Input struct {
	// Schema is the topic's input schema: EventGrid, CloudEvents or Custom.
	Schema Schema
	// Topic is the topic's name.
	Topic string
	// Mapping is the validated mapping of a topic of schema Custom; nil for the other schemas.
	Mapping *Mapping
	// NewID returns the id of a custom event whose mapping names no field for it. Schema Custom needs it.
	NewID func() string
	// Now is the time of a custom event whose mapping names no field for it. Schema Custom needs it.
	Now time.Time
	// AnyTopic accepts events that name another topic, and keeps its name as their Source: those of a relay topic,
	// and of imported dead letters.
	AnyTopic bool
	// Limits bounds the request.
	Limits Limits
	// Trace is that of the request, for events without one. ParseRequest reads it from the headers.
	Trace Trace
}

// ParseRequest reads a publish request into its events by Parse or, if the headers say so, by parseBinary. header is
// net/http's Header or a map of its form; case does not matter.
func (in Input) ParseRequest(header map[string][]string, body []byte) ([]Event, error) {
	in.Trace = headerTrace(header)
	if in.Schema == CloudEvents && IsBinary(header) {
		return in.parseBinary(header, body)
	}
	return in.Parse(contentTypeOf(header), body)
}

// Parse reads a publish request's body into its events, all or none: the first mistake rejects the request with an
// *Error. contentType is the request's header as received. Zero events ("[]") are valid. The events' Body slices share
// body's memory, which the caller must not change afterwards. Any other error is a mistake of the caller: an unknown
// schema, or schema Custom without Mapping, NewID or Now.
//
// data may be any JSON text: equal names, numbers of any size, escaped NULs and lone surrogates are accepted. Source:
// Microsoft, Azure Event Grid event schema, 2023-05-24, table of event properties; CNCF, CloudEvents 1.0.2.
func (in Input) Parse(contentType string, body []byte) ([]Event, error) {
	if err := in.complete(); err != nil {
		return nil, fmt.Errorf("parse events: %w", err)
	}
	shape, err := accept(in.Schema, contentType)
	if err != nil {
		return nil, err
	}
	if in.AnyTopic { // Microsoft does not say which media type batches of CloudEvents are delivered with
		shape = oneEventOrArray
	}
	p := in.parser(body)
	if err := p.document(shape); err != nil {
		return nil, err
	}
	return p.events, nil
}

// ParseOne reads the JSON text of one event, whatever media type it was published with. Its errors are those of Parse.
func (in Input) ParseOne(text []byte) (*Event, error) {
	if err := in.complete(); err != nil {
		return nil, fmt.Errorf("parse an event: %w", err)
	}
	p := in.parser(text)
	if err := p.document(oneEvent); err != nil {
		return nil, err
	}
	return &p.events[0], nil
}

// complete returns an error if the caller has left something out.
func (in *Input) complete() error {
	switch {
	case in.Schema == EventGrid, in.Schema == CloudEvents:
		return nil
	case in.Schema != Custom:
		return fmt.Errorf("unknown schema %q", in.Schema)
	case in.Mapping == nil:
		return fmt.Errorf("schema %s without a mapping", Custom)
	case in.NewID == nil || in.Now.IsZero():
		return errors.New("a mapping without NewID and Now")
	}
	return nil
}

// lines returns the values of a header, one for each of its lines.
func lines(header map[string][]string, name string) (values []string) {
	for key, found := range header {
		if strings.EqualFold(key, name) {
			values = append(values, found...)
		}
	}
	return values
}

// contentTypeOf returns the request's content type; "" if there is none. The first of several lines counts, as in
// net/http.
func contentTypeOf(header map[string][]string) string {
	if values := lines(header, headerContentType); len(values) > 0 {
		return values[0]
	}
	return ""
}
