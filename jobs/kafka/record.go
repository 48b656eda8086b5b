package kafka

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"mime"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"postrider/internal/destination"
)

const (
	cloudEvents = "application/cloudevents+json"
	contentType = "content-type"
	batchHead   = 61 // the size of a record batch without records
)

// newRecord returns the record of a message: a CloudEvent in structured or binary mode, any other event as the value.
// Its value is never null, which would delete the key in a compacted topic. An error is a CloudEvent that is no JSON.
//
// Source: CloudEvents, Kafka protocol binding 1.0.2, sections 3.2 and 3.3.
func newRecord(m *destination.Message, binary bool) (*kgo.Record, error) {
	r := &kgo.Record{Key: m.Key}
	if mediaType, _, _ := mime.ParseMediaType(m.ContentType); binary && mediaType == cloudEvents {
		if err := setBinary(r, m.Body); err != nil {
			return nil, err
		}
	} else {
		r.Value = m.Body
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: contentType, Value: []byte(m.ContentType)})
	}
	if r.Value == nil {
		r.Value = []byte{}
	}
	for _, a := range m.Attributes {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: a.Name, Value: []byte(a.Value)})
	}
	return r, nil
}

// setBinary sets the value to the data, and the headers to the attributes in the order of their names.
func setBinary(r *kgo.Record, body []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return err
	}
	maps.DeleteFunc(members, func(_ string, raw json.RawMessage) bool { return string(raw) == "null" }) // = absent
	media := text(members["datacontenttype"])
	data, hasData := members["data"]
	encoded, hasEncoded := members["data_base64"]
	switch {
	case hasEncoded:
		if err := json.Unmarshal(encoded, &r.Value); err != nil {
			return err
		}
	case hasData && data[0] == '"' && !isJSON(media):
		r.Value = []byte(text(data)) // the JSON format writes other media types as a text
	case hasData:
		r.Value = data
		if media == "" {
			media = "application/json" // what the JSON format implies
		}
	}
	if media != "" {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: contentType, Value: []byte(media)})
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if name != "data" && name != "data_base64" && name != "datacontenttype" {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: "ce_" + name, Value: []byte(text(members[name]))})
		}
	}
	return nil
}

// text returns the text of a JSON string, and any other value as it is.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// isJSON reports whether data of a media type are JSON. It is true for "".
func isJSON(media string) bool {
	name, _, _ := mime.ParseMediaType(media)
	return media == "" || strings.HasSuffix(name, "/json") || strings.HasSuffix(name, "+json")
}

// batchSize is the size of a record as the only one of a batch without compression.
//
// Source: Apache Kafka, message format version 2.
func batchSize(r *kgo.Record) int {
	field := func(size int) int { return len(binary.AppendVarint(nil, int64(size))) + size }
	size := 3 + field(len(r.Key)) + field(len(r.Value)) + field(len(r.Headers)) - len(r.Headers)
	for _, h := range r.Headers {
		size += field(len(h.Key)) + field(len(h.Value))
	}
	return batchHead + field(size)
}
