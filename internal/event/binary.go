package event

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"mime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"postrider/internal/jsonscan"
)

const (
	headerContentType = "content-type"
	// attributePrefix starts the headers that carry attributes. Source: CNCF, HTTP protocol binding 1.0.2, section
	// 3.1.3.1.
	attributePrefix = "ce-"
)

// IsBinary reports whether a request with these headers is a CloudEvent in binary mode: its content type is none of
// CloudEvents' own and a header names a required attribute. The binding requires all four; with one of them, the error
// names a missing one. Source: CNCF, HTTP protocol binding 1.0.2, section 3.
func IsBinary(header map[string][]string) bool {
	if isCloudEventsType(contentTypeOf(header)) {
		return false
	}
	for key := range header {
		switch name, _ := attributeName(key); name {
		case "specversion", "id", "source", "type":
			return true
		}
	}
	return false
}

// parseBinary reads a CloudEvent in binary mode: attributes in ce- headers, the data as the body. The result is one
// event, validated as Parse does, whose Body is the CloudEvent in the JSON format in new memory. Attributes are in the
// order of their names; extension attributes are strings. The *Error names the wrong header.
//
// A body under a JSON content type must be JSON and becomes data. Text (text/*, XML) in UTF-8 becomes data as a string.
// All other bytes, and those without a content type, become data_base64. An empty body is no data. Source: CNCF, HTTP
// protocol binding 1.0.2, section 3.1; JSON event format 1.0.2, section 3.1.1; Microsoft, support for CloudEvents
// schema, 2024-09-25, which has strings for text and data_base64 for binary encodings.
func (in Input) parseBinary(header map[string][]string, body []byte) ([]Event, error) {
	if in.Schema != CloudEvents {
		return nil, fmt.Errorf("parse events: schema %q has no binary mode", in.Schema)
	}
	limits := in.Limits.withDefaults(in.AnyTopic)
	if len(body) > limits.MaxEventBytes {
		return nil, tooLarge(limits.MaxEventBytes, len(body))
	}
	object, err := appendStructured(header, body, limits.MaxDepth)
	if err != nil {
		return nil, err
	}
	if len(object) > limits.MaxEventBytes {
		return nil, tooLarge(limits.MaxEventBytes, len(object))
	}
	p := in.parser(object)
	if err := p.event(0); err != nil {
		return nil, inHeader(err)
	}
	return p.events, nil
}

func tooLarge(most, size int) *Error {
	return rejectEvent(statusPayloadTooLarge, CodePayloadTooLarge, 0, "",
		"an event has at most %d bytes in the JSON format, this one has %d", most, size)
}

// inHeader turns an error about a member into one about its header.
func inHeader(err *Error) *Error {
	problem := strings.TrimPrefix(err.Message, fmt.Sprintf("events[%d].%s: ", err.Index, err.Field))
	if problem == err.Message { // it is about no member
		return err
	}
	header := attributePrefix + err.Field
	if err.Field == "datacontenttype" {
		header = headerContentType
	}
	return rejectHeader(header, "%s", problem)
}

func rejectHeader(header, format string, args ...any) *Error {
	header = shorten(header)
	return &Error{
		Status: statusBadRequest, Code: CodeInvalidEvent, Field: header,
		Message: "header " + header + ": " + fmt.Sprintf(format, args...),
	}
}

// appendStructured writes the CloudEvent in the JSON format.
func appendStructured(header map[string][]string, body []byte, maxDepth int) ([]byte, *Error) {
	found, err := attributes(header)
	if err != nil {
		return nil, err
	}
	object := make([]byte, 0, 512+len(body)*4/3)
	object = append(object, '{')
	for _, a := range found {
		object = appendMembers(object, a.name, a.value)
	}
	contentType := contentTypeOf(header)
	form, err := formOf(contentType)
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		object = appendMembers(object, "datacontenttype", contentType)
	}
	if len(body) > 0 {
		if object, err = appendData(object, form, body, maxDepth); err != nil {
			return nil, err
		}
	}
	return append(object, '}'), nil
}

// attribute is a ce- header: the values of its lines and, after read, the decoded value.
type attribute struct {
	name, value string
	lines       []string
}

// attributes reads the ce- headers, in the order of their names.
func attributes(header map[string][]string) ([]attribute, *Error) {
	found := make([]attribute, 0, 8)
	for key, values := range header {
		if name, ok := attributeName(key); ok {
			found = append(found, attribute{name: name, lines: values})
		}
	}
	if len(found) == 0 {
		return nil, rejectHeader(attributePrefix+"specversion", "is required")
	}
	slices.SortFunc(found, func(a, b attribute) int { return strings.Compare(a.name, b.name) })
	for i := range found {
		if err := found[i].read(); err != nil {
			return nil, err
		}
		if i > 0 && found[i].name == found[i-1].name {
			return nil, rejectHeader(attributePrefix+found[i].name, "appears twice")
		}
	}
	return found, nil
}

// attributeName returns the attribute of a header, whose name has no case.
func attributeName(key string) (name string, ok bool) {
	if len(key) < len(attributePrefix) || !strings.EqualFold(key[:len(attributePrefix)], attributePrefix) {
		return "", false
	}
	return strings.ToLower(key[len(attributePrefix):]), true
}

func (a *attribute) read() *Error {
	header := attributePrefix + a.name
	switch {
	case a.name == "datacontenttype":
		return rejectHeader(header, "must not be sent: %s is the type of the data", headerContentType)
	case !isExtensionName(a.name), a.name == "data":
		return rejectHeader(header,
			"must name an attribute of 1 to 20 characters of a-z and 0-9; the data is the body")
	case len(a.lines) != 1:
		return rejectHeader(header, "must have one value, has %d", len(a.lines))
	}
	var problem string
	if a.value, problem = decodeHeader(a.lines[0]); problem != "" {
		return rejectHeader(header, "%s", problem)
	}
	return nil
}

// decodeHeader decodes an attribute's value: first a quoted string, which older senders write, then percent-encoding.
// Source: CNCF, HTTP protocol binding 1.0.2, section 3.1.3.2; RFC 9110, section 5.6.4.
func decodeHeader(value string) (text, problem string) {
	value = strings.Trim(value, " \t")
	if strings.HasPrefix(value, `"`) {
		if value, problem = unquote(value); problem != "" {
			return "", problem
		}
	}
	if text, problem = percentDecode(value); problem != "" {
		return "", problem
	}
	if !utf8.ValidString(text) {
		return "", "is not UTF-8"
	}
	return text, ""
}

// unquote reads a value that is one quoted string.
func unquote(value string) (text, problem string) {
	var b strings.Builder
	for i := 1; i < len(value); i++ {
		switch c := value[i]; {
		case c == '"' && i == len(value)-1:
			return b.String(), ""
		case c == '"':
			return "", "continues after its closing quote"
		case c == '\\' && i < len(value)-1:
			i++
			b.WriteByte(value[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "has no closing quote"
}

func percentDecode(value string) (text, problem string) {
	at := strings.IndexByte(value, '%')
	if at < 0 {
		return value, ""
	}
	b := make([]byte, 0, len(value))
	for ; at >= 0; at = strings.IndexByte(value, '%') {
		b = append(b, value[:at]...)
		digits := value[at+1 : min(at+3, len(value))]
		c, err := strconv.ParseUint(digits, 16, 8)
		if err != nil || len(digits) < 2 {
			return "", "must have two hexadecimal digits after each %; a % itself is %25"
		}
		b = append(b, byte(c))
		value = value[at+3:]
	}
	return string(append(b, value...)), ""
}

// appendData writes the body as the event's data.
func appendData(dst []byte, form dataForm, body []byte, maxDepth int) ([]byte, *Error) {
	if form == jsonData {
		return appendJSON(dst, body, maxDepth)
	}
	if form == textData && utf8.Valid(body) {
		return appendQuoted(append(dst, `,"data":`...), string(body)), nil
	}
	dst = base64.StdEncoding.AppendEncode(append(dst, `,"data_base64":"`...), body)
	return append(dst, '"'), nil
}

// appendJSON writes a body that must be one JSON value, without surrounding white space.
func appendJSON(dst, body []byte, maxDepth int) ([]byte, *Error) {
	fail := func(format string, args ...any) *Error {
		return rejectEvent(statusBadRequest, CodeInvalidJSON, 0, "data", format, args...)
	}
	if !utf8.Valid(body) {
		return dst, fail("the body is not UTF-8: first wrong byte at %d", firstInvalid(body))
	}
	s := jsonscan.Scanner{Text: body, Depth: 1, MaxDepth: maxDepth} // inside the event's object
	if bytes.HasPrefix(body, byteOrderMark) {
		s.Pos = len(byteOrderMark)
	}
	s.Space()
	start := s.Pos
	if !s.Value() {
		return dst, fail("%s, at byte %d of the body", s.Problem, s.Pos)
	}
	value := body[start:s.Pos]
	if s.Space(); s.Pos < len(body) {
		return dst, fail("the body continues after its end, at byte %d", s.Pos)
	}
	return append(append(dst, `,"data":`...), value...), nil
}

// dataForm is how data is written in the JSON format.
type dataForm int

const (
	binaryData dataForm = iota
	jsonData
	textData
)

// formOf reads a content type. JSON or text in another charset than UTF-8 is binary data.
func formOf(contentType string) (dataForm, *Error) {
	if contentType == "" {
		return binaryData, nil
	}
	media, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || !utf8.ValidString(contentType) {
		return 0, reject(statusUnsupportedMediaType, CodeUnsupportedMediaType, "content type %q is not a media type",
			shorten(contentType))
	}
	if !isUTF8(parameters) {
		return binaryData, nil
	}
	kind, subtype, _ := strings.Cut(media, "/")
	if subtype == "json" || strings.HasSuffix(subtype, "+json") {
		return jsonData, nil
	}
	if kind == "text" || media == "application/xml" || strings.HasSuffix(subtype, "+xml") {
		return textData, nil
	}
	return binaryData, nil
}
