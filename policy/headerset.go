package policy

import "strings"

// HeaderSet is the custom headers of an event subscription, made ready so that an event's body is read once for all Dynamic
// ones, and not at all where there is none. It is never changed and may be used by many at once.
type HeaderSet struct {
	static  []staticHeader
	dynamic []dynamicHeader
	keySet
}

type staticHeader struct{ name, value string }

type dynamicHeader struct {
	name string
	key  int
}

// NewHeaderSet makes custom headers ready; nil for none. The list must have passed HeaderLimits.Mistakes and KeepSecrets: what
// has no value is left out.
func NewHeaderSet(list []DeliveryAttribute) *HeaderSet {
	if len(list) == 0 {
		return nil
	}
	s, tree := &HeaderSet{}, &keyTree{ends: map[string]*keyNode{}}
	for i := range list {
		if list[i].Type == AttributeDynamic {
			tree.add(list[i].SourceField)
		}
	}
	s.keySet = tree.set()
	for _, a := range list {
		switch {
		case a.Type == AttributeDynamic:
			s.dynamic = append(s.dynamic, dynamicHeader{a.Name, tree.ends[a.SourceField].key})
		case a.Value != nil:
			s.static = append(s.static, staticHeader{a.Name, *a.Value})
		}
	}
	return s
}

// Each calls set for every header of a delivery of the event. A Dynamic one is left out where the event has nothing at its
// sourceField, or what is no string, number or boolean, or a text that is longer than maxValueBytes (Event Grid's 4,096 for
// zero or less) or that no header can carry. Numbers keep their digits as they are written. Spaces and tabs around a text are
// not part of what a header carries and are left away.
// Of nil there are none.
func (s *HeaderSet) Each(view *EventView, maxValueBytes int, set func(name, value string)) {
	if s == nil {
		return
	}
	for _, h := range s.static {
		set(h.name, h.value)
	}
	s.eachDynamic(view, maxValueBytes, set)
}

func (s *HeaderSet) eachDynamic(view *EventView, maxValueBytes int, set func(name, value string)) {
	if !s.HasDynamic() {
		return
	}
	most := HeaderLimits{MaxValueBytes: maxValueBytes}.withDefaults().MaxValueBytes
	e := evaluations.Get().(*evaluation)
	e.read(&s.keySet, view)
	for _, h := range s.dynamic {
		if text, ok := e.values[h.key].inHeader(most); ok {
			set(h.name, text)
		}
	}
	e.release()
}

// HasDynamic reports whether a header's value depends on the event.
func (s *HeaderSet) HasDynamic() bool { return s != nil && len(s.dynamic) > 0 }

// DynamicValues is the same text for two events exactly if Each sets the same Dynamic headers for both.
func (s *HeaderSet) DynamicValues(view *EventView, maxValueBytes int) string {
	var values strings.Builder
	s.eachDynamic(view, maxValueBytes, func(name, value string) {
		values.WriteString(name + "\n" + value + "\n") // neither has a line break
	})
	return values.String()
}

// inHeader is the value as a header carries it; false where none can.
func (v *value) inHeader(most int) (text string, ok bool) {
	switch {
	case v.kind == valueString && v.text == nil:
		text = v.plain
	case v.kind == valueString:
		raw, lone := unescape(v.text)
		if lone {
			return "", false
		}
		text = string(raw)
	case v.kind == valueNumber || v.kind == valueBool:
		text = string(v.text)
	default:
		return "", false
	}
	text = strings.Trim(text, blanks)
	return text, len(text) <= most && sendable(text)
}
