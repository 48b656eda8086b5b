package api

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strconv"

	"postrider/internal/postgres"
)

// ETagOf is the entity tag of a version. Versions are unique among all topics, event subscriptions, retry policies and
// users, so no two states share a tag.
func ETagOf(version postgres.Version) string { return version.String() }

// etagOf is the member etag of a body; "" without one.
func etagOf(body any) string {
	v := reflect.Indirect(reflect.ValueOf(body))
	if v.Kind() != reflect.Struct {
		return ""
	}
	field, has := membersOf(v.Type()).byName["etag"]
	if !has {
		return ""
	}
	tag := reflect.Indirect(v.FieldByIndex(field.Index))
	if !tag.IsValid() {
		return ""
	}
	return fmt.Sprint(tag)
}

var (
	entityTags = regexp.MustCompile(`^[ \t]*((W/)?"[^"]*"[ \t]*(,[ \t]*|$))+$`)
	entityTag  = regexp.MustCompile(`(W/)?"[^"]*"`)
)

// checkCondition checks If-Match and If-None-Match (RFC 9110, 13.1).
func (p *Problems) checkCondition(header, value string) {
	switch {
	case value == "*":
	case header == "If-Match" && !entityTags.MatchString(value):
		p.Value(header, `must be * or a list of entity tags, such as "17"`)
	case header == "If-None-Match":
		p.Value(header, "must be *, which creates the object only if it does not exist")
	}
}

// IfMatchHeader is the condition that the object has one of these versions.
type IfMatchHeader struct {
	IfMatch *string `header:"If-Match"`
}

// Conditions reads the header.
func (h IfMatchHeader) Conditions() []postgres.Condition {
	switch {
	case h.IfMatch == nil:
		return nil
	case *h.IfMatch == "*":
		return []postgres.Condition{{Present: true}}
	}
	// A weak tag, or one of another form, is no version's.
	versions := []postgres.Version{}
	for _, tag := range entityTag.FindAllString(*h.IfMatch, -1) {
		var version postgres.Version
		if err := version.UnmarshalText([]byte(tag)); err == nil && tag == ETagOf(version) {
			versions = append(versions, version)
		}
	}
	return []postgres.Condition{{Versions: versions}}
}

// Rejected is err, or the response 412 if err is ErrPrecondition.
func (h IfMatchHeader) Rejected(err error, what, name string) error {
	switch {
	case !errors.Is(err, postgres.ErrPrecondition):
		return err
	case h.IfMatch == nil:
		return Reject(http.StatusPreconditionFailed, codePreconditionFailed,
			"%s %q exists already, and If-None-Match is *", what, Shorten(name))
	}
	return Reject(http.StatusPreconditionFailed, codePreconditionFailed,
		"%s %q is in none of the versions that If-Match names: read it again", what, Shorten(name))
}

// PutHeaders are the conditions of a PUT.
type PutHeaders struct {
	IfMatchHeader
	IfNoneMatch *string `header:"If-None-Match"`
}

// Conditions reads both headers.
func (h PutHeaders) Conditions() []postgres.Condition {
	when := h.IfMatchHeader.Conditions()
	if h.IfNoneMatch != nil {
		when = append(when, postgres.Condition{Absent: true})
	}
	return when
}

// EntityTag is text as an entity tag. It accepts a plain number, which is easier to type in a shell.
func EntityTag(text string) string {
	if version, err := strconv.ParseInt(text, 10, 64); err == nil {
		return ETagOf(postgres.Version(version))
	}
	return text
}
