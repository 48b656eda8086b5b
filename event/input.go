package event

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Input is what the server knows of a publish request before it reads the body.
type Input struct {
	// Schema is the topic's input schema: EventGrid, CloudEvents or Custom.
	Schema Schema
	// Topic is the topic's name, as in the publishing address.
	Topic string
	// Mapping is where a topic of schema Custom finds the envelope; it must be there for that schema and have passed
	// Validate. The other schemas have none.
	Mapping *Mapping
	// NewID makes the id of a custom event whose mapping names no field for it. The schema Custom needs it.
	NewID func() string
	// Now is the time of a custom event whose mapping names no field for it. The schema Custom needs it.
	Now time.Time
	// Limits bounds the request.
	Limits Limits
	// Trace is the trace of the request itself, for events that carry none of their own; ParseRequest reads it from the
	// headers.
	Trace Trace
}

// ParseRequest reads a publish request into its events, by Parse or by ParseBinary as the headers say. header is
// net/http's Header or a map of its form; case does not matter. Errors are theirs.
func (in Input) ParseRequest(header map[string][]string, body []byte) ([]Event, error) {
	in.Trace = headerTrace(header)
	if in.Schema == CloudEvents && IsBinary(header) {
		return in.ParseBinary(header, body)
	}
	return in.Parse(contentTypeOf(header), body)
}

// Parse reads a publish request's body into its events, all or none: the first mistake refuses the request with an
// *Error. contentType is the request's header as received. Zero events ("[]") is no mistake. The events' Body slices
// share body's memory, which the caller must leave alone from then on. Any other error is the program's: an input
// schema there is none of, or a topic of schema Custom without Mapping, NewID or Now.
//
// data is accepted as it is, as long as it is JSON text: equal names, numbers of any size, escaped NULs and lone
// surrogates included. What is required of an envelope: Microsoft, Azure Event Grid event schema, 2023-05-24, table of
// event properties; CNCF, CloudEvents 1.0.2.
func (in Input) Parse(contentType string, body []byte) ([]Event, error) {
	if err := in.complete(); err != nil {
		return nil, fmt.Errorf("parse events: %w", err)
	}
	shape, err := accept(in.Schema, contentType)
	if err != nil {
		return nil, err
	}
	p := in.parser(body)
	if err := p.document(shape); err != nil {
		return nil, err
	}
	return p.events, nil
}

// complete reports what the program left out.
func (in *Input) complete() error {
	switch {
	case in.Schema == EventGrid, in.Schema == CloudEvents:
		return nil
	case in.Schema != Custom:
		return fmt.Errorf("unknown schema %q", in.Schema)
	case in.Mapping == nil:
		return fmt.Errorf("schema %s without a mapping", Custom)
	case in.NewID == nil || in.Now.IsZero():
		return errors.New("a mapping without an id and a time to fall back on")
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

// contentTypeOf returns the request's content type, "" when there is none. Of several lines the first counts, as in
// net/http.
func contentTypeOf(header map[string][]string) string {
	if values := lines(header, headerContentType); len(values) > 0 {
		return values[0]
	}
	return ""
}
