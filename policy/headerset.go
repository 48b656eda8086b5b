package policy

import (
	"strings"

	"postrider/policy/filter"
)

// HeaderSet is the custom headers of an event subscription, prepared so that an event's body is read once for all
// Dynamic headers, and not at all without them. It is immutable and safe for concurrent use.
type HeaderSet struct {
	static  []staticHeader
	dynamic []string // names, in the order of fields
	fields  *filter.Keys
}

type staticHeader struct{ name, value string }

// NewHeaderSet prepares custom headers; nil if there are none. The list must have passed HeaderLimits.Mistakes and
// KeepSecrets: a header without a value is left out.
func NewHeaderSet(list []DeliveryAttribute) *HeaderSet {
	if len(list) == 0 {
		return nil
	}
	s := &HeaderSet{}
	var fields []string
	for _, a := range list {
		switch {
		case a.Type == AttributeDynamic:
			s.dynamic, fields = append(s.dynamic, a.Name), append(fields, a.SourceField)
		case a.Value != nil:
			s.static = append(s.static, staticHeader{a.Name, *a.Value})
		}
	}
	s.fields = filter.NewKeys(fields)
	return s
}

// Each calls set for every header of a delivery of the event. A Dynamic one is left out where the event has nothing at
// its sourceField, or what is no string, number or boolean, or a text that is longer than maxValueBytes (Event Grid's
// 4,096 for zero or less) or that no header can carry. Numbers keep their digits as they are written. Spaces and tabs
// around a text are not part of what a header carries and are left away. Of nil there are none.
func (s *HeaderSet) Each(view *filter.EventView, maxValueBytes int, set func(name, value string)) {
	if s == nil {
		return
	}
	for _, h := range s.static {
		set(h.name, h.value)
	}
	s.eachDynamic(view, maxValueBytes, set)
}

func (s *HeaderSet) eachDynamic(view *filter.EventView, maxValueBytes int, set func(name, value string)) {
	if !s.HasDynamic() {
		return
	}
	most := HeaderLimits{MaxValueBytes: maxValueBytes}.withDefaults().MaxValueBytes
	s.fields.Each(view, func(i int, text string) {
		if text = strings.Trim(text, blanks); len(text) <= most && sendable(text) {
			set(s.dynamic[i], text)
		}
	})
}

// HasDynamic reports whether a header's value depends on the event.
func (s *HeaderSet) HasDynamic() bool { return s != nil && len(s.dynamic) > 0 }

// DynamicValues is the same text for two events exactly if Each sets the same Dynamic headers for both.
func (s *HeaderSet) DynamicValues(view *filter.EventView, maxValueBytes int) string {
	var values strings.Builder
	s.eachDynamic(view, maxValueBytes, func(name, value string) {
		values.WriteString(name + "\n" + value + "\n") // neither has a line break
	})
	return values.String()
}
