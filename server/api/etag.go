package api

import (
	"errors"
	"net/http"
	"regexp"
	"strconv"

	"postrider/postgres"
)

// ETagOf is the entity tag of the settings of a topic, an event subscription or a retry policy. The version is drawn
// anew each time they are written and whenever a validation moves on, for all of them from one row of numbers: no two
// states ever share one.
func ETagOf(version postgres.Version) string { return version.String() }

var (
	entityTags = regexp.MustCompile(`^[ \t]*((W/)?"[^"]*"[ \t]*(,[ \t]*|$))+$`)
	entityTag  = regexp.MustCompile(`(W/)?"[^"]*"`)
)

// Conditions reads If-Match and If-None-Match (RFC 9110, 13.1); nil for absent. Of the second only * has a meaning for
// a change.
func Conditions(match, noneMatch *string) ([]postgres.Condition, error) {
	var when []postgres.Condition
	var found Problems
	switch {
	case match == nil:
	case *match == "*":
		when = append(when, postgres.Condition{Present: true})
	case !entityTags.MatchString(*match):
		found.Value("If-Match", `must be * or a list of entity tags, such as "17"`)
	default:
		when = append(when, postgres.Condition{Versions: versionsOf(*match)})
	}
	switch {
	case noneMatch == nil:
	case *noneMatch == "*":
		when = append(when, postgres.Condition{Absent: true})
	default:
		found.Value("If-None-Match", "must be *: only what does not exist can be asked for")
	}
	return when, found.Err()
}

// IfMatchHeader is the condition of a change: only in one of these versions.
type IfMatchHeader struct {
	IfMatch *string `header:"If-Match"`
}

// Conditions reads the header.
func (h IfMatchHeader) Conditions() ([]postgres.Condition, error) { return Conditions(h.IfMatch, nil) }

// Rejected is err, or the response 412 if err says that the condition does not hold of the thing.
func (h IfMatchHeader) Rejected(err error, what, name string) error {
	if errors.Is(err, postgres.ErrPrecondition) {
		return RejectPrecondition(what, name, h.IfMatch)
	}
	return err
}

// PutHeaders are the conditions of a PUT.
type PutHeaders struct {
	IfMatchHeader
	IfNoneMatch *string `header:"If-None-Match"`
}

// Conditions reads both headers.
func (h PutHeaders) Conditions() ([]postgres.Condition, error) {
	return Conditions(h.IfMatchHeader.IfMatch, h.IfNoneMatch)
}

// versionsOf reads entity tags. One that is weak, or none of ours, is the tag of nothing.
func versionsOf(list string) []postgres.Version {
	versions := []postgres.Version{}
	for _, tag := range entityTag.FindAllString(list, -1) {
		var version postgres.Version
		if err := version.UnmarshalText([]byte(tag)); err == nil && tag == ETagOf(version) {
			versions = append(versions, version)
		}
	}
	return versions
}

// ReadIfMatch is the condition of a change that somebody wants only in the version named: If-Match, or the number in
// it. "" asks for nothing.
func ReadIfMatch(text string) ([]postgres.Condition, error) {
	if text == "" {
		return nil, nil
	}
	text = EntityTag(text)
	return Conditions(&text, nil)
}

// EntityTag is text as the header has it: a number, which is easier to type in a shell, becomes an entity tag.
func EntityTag(text string) string {
	if version, err := strconv.ParseInt(text, 10, 64); err == nil {
		return ETagOf(postgres.Version(version))
	}
	return text
}

// RejectPrecondition is the response if no version that If-Match names is the stored one.
func RejectPrecondition(what, name string, match *string) error {
	if match == nil {
		return Refuse(http.StatusPreconditionFailed, codePreconditionFailed,
			"%s %q exists already, and If-None-Match asks that it does not", what, Shorten(name))
	}
	return Refuse(http.StatusPreconditionFailed, codePreconditionFailed,
		"%s %q is in none of the versions that If-Match names: read it again", what, Shorten(name))
}
