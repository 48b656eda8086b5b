package operator

import (
	"bytes"
	"encoding/json"
	"strconv"

	"postrider/internal/jsonscan"
)

// Change is a changed member of an event.
type Change struct {
	// Its JSON Pointer.
	Path string `json:"path"`
	// Its value before; absent if it was added.
	Before json.RawMessage `json:"before,omitempty"`
	// Its value after; absent if it was removed.
	After json.RawMessage `json:"after,omitempty"`
}

// maxChanges bounds a diff: more are not read by a person.
const maxChanges = 100

// Diff returns the differences between two JSON documents, up to 100. White space and the order of members make none.
func Diff(before, after []byte) []Change {
	var list []Change
	diff(&list, "", bytes.TrimSpace(before), bytes.TrimSpace(after))
	return list
}

func diff(list *[]Change, path string, before, after []byte) {
	if len(*list) == maxChanges || bytes.Equal(before, after) {
		return
	}
	if len(before) == 0 || len(after) == 0 || before[0] != after[0] || before[0] != '{' && before[0] != '[' {
		*list = append(*list, Change{path, before, after})
		return
	}
	old, now := entriesOf(before), entriesOf(after)
	for _, name := range old.names {
		diff(list, path+"/"+pointerEscapes.Replace(name), old.values[name], now.values[name])
	}
	for _, name := range now.names {
		if _, has := old.values[name]; !has {
			diff(list, path+"/"+pointerEscapes.Replace(name), nil, now.values[name])
		}
	}
}

// entries are the members of an object, or the elements of an array by their index, in order. Of equal names the last
// one counts.
type entries struct {
	names  []string
	values map[string][]byte
}

func entriesOf(text []byte) entries {
	s, e := jsonscan.Scanner{Text: text}, entries{values: map[string][]byte{}}
	add := func(name string) bool {
		begin := s.Pos
		if !s.Value() {
			return false
		}
		if _, has := e.values[name]; !has {
			e.names = append(e.names, name)
		}
		e.values[name] = text[begin:s.Pos]
		return true
	}
	if s.Peek() == '[' {
		s.Array(func() bool { return add(strconv.Itoa(len(e.names))) })
		return e
	}
	s.Object(func(raw []byte) bool {
		name, _ := jsonscan.Unescape(raw)
		return add(string(name))
	})
	return e
}
