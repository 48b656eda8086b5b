package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
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
	body, err := readBody(r, limit)
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
	case t == reflect.TypeFor[time.Time]():
		p.text(raw, path, "an RFC 3339 time, such as 2030-01-31T12:00:00Z", func(text string) error {
			_, err := time.Parse(time.RFC3339, text)
			return err
		})
	case t == reflect.TypeFor[uuid.UUID]():
		p.text(raw, path, "a UUID", uuid.Validate)
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
	case t.Kind() == reflect.Map && raw[0] == '{':
		p.object(raw, path, func(string) (reflect.StructField, bool) { return reflect.StructField{Type: t.Elem()}, true },
			nil, nil)
	case t.Kind() == reflect.Struct && raw[0] == '{':
		members, names := map[string]reflect.StructField{}, []string{}
		for _, field := range Members(t) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			members[name] = field
			names = append(names, name)
		}
		slices.Sort(names)
		var hint func(string, []byte) string
		if h, has := reflect.New(t).Interface().(hinter); has {
			hint = h.HintFor
		}
		p.object(raw, path, func(name string) (reflect.StructField, bool) {
			member, known := members[name]
			return member, known
		}, names, hint)
	}
}

// text checks a string for which the decoder's error has no path. form describes valid values.
func (p *Problems) text(raw []byte, path, form string, check func(string) error) {
	var text *string
	if err := json.Unmarshal(raw, &text); err != nil {
		p.Value(path, "must be a string")
	} else if text != nil && check(*text) != nil {
		p.Value(path, "must be %s, not %q", form, Shorten(*text))
	}
}

// hinter is a type that knows where the value of a member belongs that it does not have; "" for others.
type hinter interface {
	HintFor(member string, value []byte) string
}

func (p *Problems) object(
	raw []byte, path string, known func(string) (reflect.StructField, bool), names []string,
	hint func(string, []byte) string,
) {
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
		case !ok:
			problem := "is not a member; the members are: " + strings.Join(names, ", ")
			if hint != nil {
				problem = cmp.Or(hint(name, value), problem)
			}
			p.Add(codeUnknownMember, path+name, "%s", problem)
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

// membersOf has the result of Members by type: finding them took 40 % of the time of a large PUT.
var membersOf sync.Map

// Members are the fields of a struct that are members of its JSON, embedded ones included. An outer field replaces an
// embedded one of the same name. The list is not to be changed.
func Members(t reflect.Type) []reflect.StructField {
	known, has := membersOf.Load(t)
	if !has {
		known, _ = membersOf.LoadOrStore(t, findMembers(t))
	}
	return known.([]reflect.StructField)
}

func findMembers(t reflect.Type) (list []reflect.StructField) {
	depth := map[string]int{}
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		before, taken := depth[name]
		if name == "" || name == "-" || !inlined(t, field.Index) || taken && before <= len(field.Index) {
			continue
		}
		if taken {
			list = slices.DeleteFunc(list, func(f reflect.StructField) bool {
				other, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				return other == name
			})
		}
		depth[name] = len(field.Index)
		list = append(list, field)
	}
	return list
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
