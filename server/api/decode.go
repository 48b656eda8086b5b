package api

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/internal/jsonscan"
)

// readJSON decodes the request's body, of up to limit bytes, into target; an empty body does not change it.
func readJSON(r *http.Request, target any, limit int) error {
	if err := checkMediaType(r.Method, r.Header.Get(echo.HeaderContentType)); err != nil {
		return err
	}
	if limit > largeBytes && (r.ContentLength < 0 || r.ContentLength > largeBytes) {
		select {
		case largeBodies <- struct{}{}:
			defer func() { <-largeBodies }()
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
	body, err := ReadBody(r, limit)
	if err != nil {
		return err
	}
	defer Free(body)
	return DecodeStrictly(body.Bytes(), target)
}

// largeBytes is the size of a large body. largeBodies limits the memory of these: one is read at a time.
const largeBytes = 4 << 20

var largeBodies = make(chan struct{}, 1)

// checkMediaType rejects media types other than JSON; a PATCH may also be a merge patch. An absent one is accepted.
func checkMediaType(method, contentType string) error {
	if contentType == "" {
		return nil
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err == nil &&
		(media == echo.MIMEApplicationJSON || method == http.MethodPatch && media == "application/merge-patch+json") {
		return nil
	}
	return Reject(http.StatusUnsupportedMediaType, CodeUnsupportedMediaType,
		"send the header Content-Type: application/json")
}

// maxDepth is the most nested objects and arrays of a body. What it holds may nest as deep as an event, 256 levels.
const maxDepth = 512

// DecodeStrictly decodes a JSON object. It rejects members that encoding/json ignores: unknown names, names in another
// case and duplicates. It reports all of these, and the first member of a wrong type.
func DecodeStrictly(body []byte, target any) error {
	body = bytes.Trim(body, " \t\r\n") // JSON's white space (RFC 8259, 2)
	s := jsonscan.Scanner{Text: body, MaxDepth: maxDepth}
	switch {
	case len(body) == 0:
		return nil
	case !utf8.Valid(body):
		return Reject(http.StatusBadRequest, CodeInvalidRequest, "the body must be UTF-8")
	case !s.Value() || s.Pos < len(body):
		return Reject(http.StatusBadRequest, CodeInvalidRequest, "the body must be one JSON document: %s, at byte %d",
			cmp.Or(s.Problem, "it continues after its end"), s.Pos)
	case body[0] != '{':
		return Reject(http.StatusBadRequest, CodeInvalidRequest, "the body must be a JSON object")
	}
	var found Problems
	found.members(body, reflect.TypeOf(target), "")
	var mismatch *json.UnmarshalTypeError
	if err := json.Unmarshal(body, target); errors.As(err, &mismatch) {
		found.Value(embedded.ReplaceAllString(mismatch.Field, ""), "must be %s", kindName(mismatch.Type))
	} else if err != nil && len(found) == 0 {
		return Reject(http.StatusBadRequest, CodeInvalidRequest, "the body does not fit this operation")
	}
	return found.Err()
}

// embedded matches the Go names of embedded structs in a path. Names in JSON begin with a small letter.
var embedded = regexp.MustCompile(`\b[A-Z]\w*\.`)

// members checks the names in raw, which is valid JSON, by the members of t. The decoder reports other mistakes.
func (p *Problems) members(raw []byte, t reflect.Type, path string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case textForms[t] != "":
		var text *string
		if err := json.Unmarshal(raw, &text); err != nil {
			p.Value(path, "must be a string")
		} else if text != nil {
			p.readText(path, *text, reflect.New(t))
		}
	case t.Kind() == reflect.String && raw[0] == '"':
		switch text, lone := jsonscan.Unescape(raw[1 : len(raw)-1]); {
		case lone: // encoding/json would replace it
			p.Value(path, "must not contain a lone surrogate")
		case bytes.ContainsRune(text, 0): // PostgreSQL cannot store it, but would not name the member
			p.Value(path, "must not contain the character 0")
		}
	case t.Kind() == reflect.Slice && raw[0] == '[':
		var list []json.RawMessage
		_ = json.Unmarshal(raw, &list)
		for i, entry := range list {
			p.members(entry, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	case (t.Kind() == reflect.Map || t.Kind() == reflect.Struct) && raw[0] == '{':
		p.object(raw, t, path)
	}
}

// textForms are the types that have a text of this form, in JSON and in parameters. The decoder's errors have no path.
var textForms = map[reflect.Type]string{
	reflect.TypeFor[time.Time](): "an RFC 3339 time, such as 2026-11-20T09:30:00Z",
	reflect.TypeFor[uuid.UUID](): "a UUID",
}

// readText reads a value of textForms. into is a pointer to it.
func (p *Problems) readText(target, text string, into reflect.Value) {
	if err := into.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)); err != nil {
		p.Value(target, "must be %s, not %q", textForms[into.Type().Elem()], Shorten(text))
	}
}

// hinter is a type that knows where the value of a member belongs that it does not have; "" for others.
type hinter interface {
	HintFor(member string, value []byte) string
}

// object checks the members of an object. A map has any.
func (p *Problems) object(raw []byte, t reflect.Type, path string) {
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
		member, known := reflect.StructField{}, true
		if t.Kind() == reflect.Map {
			member.Type = t.Elem()
		} else {
			member, known = membersOf(t).byName[name]
		}
		switch {
		case !known:
			p.Add(codeUnknownMember, path+name, "%s", unknownMember(t, name, value))
		case seen[name]:
			p.Value(path+name, "appears twice")
		case string(value) == `""` && member.Tag.Get("minLength") == "1":
			p.Value(path+name, "must not be empty")
		default:
			p.members(value, member.Type, path+name)
		}
		seen[name] = true
	}
}

func unknownMember(t reflect.Type, name string, value []byte) string {
	hint := ""
	if h, has := reflect.New(t).Interface().(hinter); has {
		hint = h.HintFor(name, value)
	}
	names := slices.Sorted(maps.Keys(membersOf(t).byName))
	return cmp.Or(hint, "is not a member; the members are: "+strings.Join(names, ", "))
}

// MemberName is the name of a field in JSON.
func MemberName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

// Members are the fields of a struct that are members of its JSON, embedded ones included. An outer field replaces an
// embedded one of the same name. The list is not to be changed.
func Members(t reflect.Type) []reflect.StructField { return membersOf(t).list }

type memberSet struct {
	list   []reflect.StructField
	byName map[string]reflect.StructField
}

// memberSets has the members by type: finding them took 40 % of the time of a large PUT.
var memberSets sync.Map

func membersOf(t reflect.Type) *memberSet {
	if known, has := memberSets.Load(t); has {
		return known.(*memberSet)
	}
	found := &memberSet{byName: map[string]reflect.StructField{}}
	for _, field := range reflect.VisibleFields(t) {
		name := MemberName(field)
		before, taken := found.byName[name]
		if name == "" || name == "-" || !inlined(t, field.Index) || taken && len(before.Index) <= len(field.Index) {
			continue
		}
		found.list = slices.DeleteFunc(found.list, func(f reflect.StructField) bool { return MemberName(f) == name })
		found.byName[name] = field
		found.list = append(found.list, field)
	}
	memberSets.Store(t, found)
	return found
}

// inlined reports whether no embedded struct around a field has a JSON name.
func inlined(t reflect.Type, index []int) bool {
	for i := 1; i < len(index); i++ {
		if t.FieldByIndex(index[:i]).Tag.Get("json") != "" {
			return false
		}
	}
	return true
}

func kindName(t reflect.Type) string {
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
