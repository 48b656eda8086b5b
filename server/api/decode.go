package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"
)

// StrictBinder reads the JSON bodies of management requests for the generated handlers. It refuses what encoding/json
// lets pass: unknown names, names in the wrong case, names given twice. Each is a setting that would silently not be
// set.
type StrictBinder struct{}

// Bind fills target from the request's body; an empty body leaves it as it is.
func (StrictBinder) Bind(target any, c echo.Context) error {
	if err := wantJSON(c.Request().Method, c.Request().Header.Get(echo.HeaderContentType)); err != nil {
		return err
	}
	body, err := ReadBody(c.Request())
	if err != nil {
		return err
	}
	defer Free(body)
	return DecodeStrictly(body.Bytes(), target)
}

// wantJSON refuses what is not said to be JSON; a patch may be said to be the merge patch that it is.
func wantJSON(method, contentType string) error {
	if contentType == "" {
		return nil
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err == nil &&
		(media == echo.MIMEApplicationJSON || method == http.MethodPatch && media == "application/merge-patch+json") {
		return nil
	}
	return Refuse(http.StatusUnsupportedMediaType, CodeUnsupportedMediaType,
		"send the header Content-Type: application/json")
}

// DecodeStrictly finds all unknown members at once, and the first member of a wrong type.
func DecodeStrictly(body []byte, target any) error {
	body = bytes.Trim(body, " \t\r\n") // JSON's own white space (RFC 8259, 2), and no other
	switch {
	case len(body) == 0:
		return nil
	case !utf8.Valid(body):
		return Refuse(http.StatusBadRequest, CodeInvalidRequest, "the body is not UTF-8")
	case !json.Valid(body):
		return Refuse(http.StatusBadRequest, CodeInvalidRequest, "the body is not one JSON document")
	case body[0] != '{':
		return Refuse(http.StatusBadRequest, CodeInvalidRequest, "the body must be a JSON object")
	}
	var found Problems
	found.members(body, reflect.TypeOf(target), "")
	var mismatch *json.UnmarshalTypeError
	if err := json.Unmarshal(body, target); errors.As(err, &mismatch) {
		found.Value(mismatch.Field, "must be %s", kindInWords(mismatch.Type))
	} else if err != nil {
		return Refuse(http.StatusBadRequest, CodeInvalidRequest, "the body cannot be read")
	}
	return found.Err()
}

// members adds the members of the object raw that t does not have, and those that are there twice, also of the objects
// in an array. What is of another kind is left to the decoder. raw is known to be JSON, so reading its tokens cannot
// fail.
func (p *Problems) members(raw []byte, t reflect.Type, path string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.Slice && raw[0] == '[':
		p.entries(raw, t.Elem(), path)
	case t.Kind() == reflect.Map && raw[0] == '{':
		p.object(raw, path, func(string) (reflect.Type, bool) { return t.Elem(), true }, nil)
	case t.Kind() == reflect.Struct && raw[0] == '{':
		types, names := memberTypes(t)
		p.object(raw, path, func(name string) (reflect.Type, bool) {
			member, known := types[name]
			return member, known
		}, names)
	}
}

func (p *Problems) object(raw []byte, path string, known func(string) (reflect.Type, bool), names []string) {
	if path != "" {
		path += "."
	}
	seen := map[string]bool{}
	d := json.NewDecoder(bytes.NewReader(raw))
	_, _ = d.Token()
	for d.More() {
		token, _ := d.Token()
		name, _ := token.(string)
		var value json.RawMessage
		_ = d.Decode(&value)
		switch member, ok := known(name); {
		case !ok && name == "destination" && slices.Contains(names, "endpointUrl"):
			p.Add(codeUnknownMember, path+name, "%s", destinationHint(value))
		case !ok:
			p.Add(codeUnknownMember, path+name, "is not known here; what is: %s", strings.Join(names, ", "))
		case seen[name]:
			p.Value(path+name, "appears twice")
		default:
			p.members(value, member, path+name)
		}
		seen[name] = true
	}
}

// destinationHint says what stands here for Event Grid's destination of an event subscription.
func destinationHint(value []byte) string {
	var given struct{ EndpointType *string }
	if json.Unmarshal(value, &given) == nil && given.EndpointType != nil && *given.EndpointType != "WebHook" {
		return fmt.Sprintf("has endpointType %q, and WebHook is the only endpoint type: state its URL as endpointUrl",
			Shorten(*given.EndpointType))
	}
	return "is not known here: state its properties, such as endpointUrl, beside the other settings; WebHook is the " +
		"only endpoint type"
}

func (p *Problems) entries(raw []byte, t reflect.Type, path string) {
	var list []json.RawMessage
	_ = json.Unmarshal(raw, &list)
	for i, entry := range list {
		p.members(entry, t, fmt.Sprintf("%s[%d]", path, i))
	}
}

// memberTypes lists the JSON names of a struct's fields, in alphabetical order, with their types.
func memberTypes(t reflect.Type) (types map[string]reflect.Type, names []string) {
	types = map[string]reflect.Type{}
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue // embedded, or no member
		}
		types[name] = field.Type
		names = append(names, name)
	}
	slices.Sort(names)
	return types, names
}

func kindInWords(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "an array"
	default:
		return "an object"
	}
}
