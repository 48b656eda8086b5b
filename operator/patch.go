package operator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"postrider/jsonscan"
	"postrider/postgres"
)

// Patch changes JSON documents: a JSON merge patch (RFC 7396), which is an object, or a JSON Patch (RFC 6902), which is
// an array of the operations test, add, replace and remove. What it does not name keeps its bytes.
type Patch struct {
	merge      []byte
	operations []patchOperation
}

type patchOperation struct {
	Op, Path string
	Value    json.RawMessage
	tokens   []string // of the path
}

// maxPatchOperations bounds the time of a patch: each operation reads the event.
const maxPatchOperations = 100

// ParsePatch reads a patch. *FunctionError that is ErrInvalid.
func ParsePatch(text []byte) (*Patch, error) {
	text = bytes.TrimSpace(text)
	switch {
	case !utf8.Valid(text) || !json.Valid(text):
		return nil, postgres.Invalid("patch", "patch must be JSON")
	case text[0] == '{':
		return &Patch{merge: text}, nil
	case text[0] != '[':
		return nil, postgres.Invalid("patch",
			"patch must be a JSON merge patch, which is an object, or a JSON Patch, which is an array")
	}
	p := new(Patch)
	if err := json.Unmarshal(text, &p.operations); err != nil {
		return nil, postgres.Invalid("patch", "patch must have objects with the strings op and path")
	}
	if len(p.operations) > maxPatchOperations {
		return nil, postgres.Invalid("patch", "patch has at most %d operations, this one has %d", maxPatchOperations,
			len(p.operations))
	}
	for i := range p.operations {
		if problem := p.operations[i].read(); problem != "" {
			return nil, postgres.Invalid(fmt.Sprintf("patch[%d]", i), "patch[%d]%s", i, problem)
		}
	}
	return p, nil
}

// read reads the path, and returns what is wrong with the operation.
func (o *patchOperation) read() (problem string) {
	switch {
	case o.Op != "test" && o.Op != "add" && o.Op != "replace" && o.Op != "remove":
		return fmt.Sprintf(`.op must be test, add, replace or remove, not %q`, o.Op)
	case o.Value == nil && o.Op != "remove":
		return ".value is required"
	case o.Path == "":
		return ".path must not be empty: it would be the whole event"
	case o.Path[0] != '/':
		return ".path must begin with /, such as /data/total"
	}
	o.tokens = strings.Split(o.Path[1:], "/")
	for i, token := range o.tokens {
		if strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(token), "~") {
			return ".path has a ~ without 0 or 1 after it"
		}
		o.tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
	}
	return ""
}

// Paths returns what the patch changes, as JSON Pointers.
func (p *Patch) Paths() (paths []string) {
	for _, o := range p.operations {
		if o.Op != "test" {
			paths = append(paths, o.Path)
		}
	}
	if p.merge != nil {
		paths = mergedPaths(nil, "", p.merge)
	}
	return paths
}

func mergedPaths(paths []string, at string, patch []byte) []string {
	kind, members := entriesOf(patch)
	if kind != '{' || at != "" && len(members) == 0 {
		return append(paths, at)
	}
	for _, m := range members {
		name := strings.NewReplacer("~", "~0", "/", "~1").Replace(m.name)
		paths = mergedPaths(paths, at+"/"+name, m.value)
	}
	return paths
}

// PatchError says why a patch cannot be applied to a document.
type PatchError struct {
	// Cause is "path" (there is no such path) or "test" (a test failed).
	Cause, Path, Problem string
}

// Error returns the path and the problem.
func (e *PatchError) Error() string { return e.Path + " " + e.Problem }

// Apply returns the changed document. text is one JSON value. *PatchError.
func (p *Patch) Apply(text []byte) (changed []byte, err error) {
	text = bytes.TrimSpace(text)
	if p.merge != nil {
		return merge(text, p.merge), nil
	}
	for i := range p.operations {
		if text, err = p.operations[i].apply(text, p.operations[i].tokens); err != nil {
			return nil, err
		}
	}
	return text, nil
}

// merge applies a JSON merge patch to a value; nil is no value.
func merge(value, patch []byte) []byte {
	kind, changes := entriesOf(patch)
	if kind != '{' {
		return patch
	}
	_, members := entriesOf(value)
	if len(value) == 0 || value[0] != '{' {
		value, members = []byte("{}"), nil
	}
	for _, change := range changes {
		i := find(members, change.name)
		switch null := string(change.value) == "null"; {
		case null && i < 0:
		case null:
			members = append(members[:i:i], members[i+1:]...)
		case i < 0:
			members = append(members, newMember(change.name, merge(nil, change.value)))
		default:
			members[i].value = merge(members[i].value, change.value)
		}
	}
	return join(value, members)
}

// apply changes a value at a path below it.
func (o *patchOperation) apply(value []byte, path []string) ([]byte, error) {
	kind, list := entriesOf(value)
	i, problem := o.locate(kind, list, path[0], len(path) == 1)
	switch {
	case problem != "":
		return nil, &PatchError{Cause: "path", Path: o.Path, Problem: problem}
	case len(path) > 1:
		changed, err := o.apply(list[i].value, path[1:])
		if err != nil {
			return nil, err
		}
		list[i].value = changed
	case o.Op == "test":
		if !equalJSON(list[i].value, o.Value) {
			return nil, &PatchError{Cause: "test", Path: o.Path, Problem: "has another value than the test"}
		}
		return value, nil
	case o.Op == "remove":
		list = append(list[:i:i], list[i+1:]...)
	case kind == '[' && o.Op == "add":
		list = append(list[:i:i], append([]entry{{value: o.Value}}, list[i:]...)...)
	case i == len(list):
		list = append(list, newMember(path[0], o.Value))
	default:
		list[i].value = o.Value
	}
	return join(value, list), nil
}

// locate returns the index of the entry that a token of the path names; that of a new one for add.
func (o *patchOperation) locate(kind byte, list []entry, token string, last bool) (i int, problem string) {
	adds := last && o.Op == "add"
	switch kind {
	case '{':
		i = find(list, token)
		if i < 0 && adds {
			return len(list), ""
		}
	case '[':
		n, err := strconv.Atoi(token)
		i = n
		switch {
		case token == "-" && adds:
			return len(list), ""
		case err != nil || n < 0 || strconv.Itoa(n) != token || n > len(list) || n == len(list) && !adds:
			i = -1
		}
	default:
		return 0, "does not exist"
	}
	if i < 0 {
		return 0, "does not exist"
	}
	return i, ""
}

// entry is a member of an object or an element of an array. before and after are the text around its value: white
// space, and before it the name of a member.
type entry struct {
	name          string
	before, after []byte
	value         []byte
}

func newMember(name string, value []byte) entry {
	quoted, _ := exactText(name)
	return entry{name: name, before: append(quoted, ':'), value: value}
}

// exactText is a string as JSON in which <, > and & are not escaped.
func exactText(text string) ([]byte, error) {
	var quoted bytes.Buffer
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(text)
	return bytes.TrimSpace(quoted.Bytes()), err
}

// entriesOf splits an object or an array. kind is its first byte; other values have no entries.
func entriesOf(text []byte) (kind byte, list []entry) {
	s := jsonscan.Scanner{Text: text}
	from := 1
	add := func(name string) bool {
		start := s.Pos
		if !s.Value() {
			return false
		}
		end := s.Pos
		s.Space()
		list = append(list, entry{name, text[from:start], text[end:s.Pos], text[start:end]})
		from = s.Pos + 1
		return true
	}
	switch kind = s.Peek(); kind {
	case '{':
		s.Object(func(raw []byte) bool {
			name, _ := jsonscan.Unescape(raw)
			return add(string(name))
		})
	case '[':
		s.Array(func() bool { return add("") })
	}
	return kind, list
}

// find returns the last member of a name, which is the one that readers of JSON use; -1 if there is none.
func find(list []entry, name string) int {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].name == name {
			return i
		}
	}
	return -1
}

// join writes the entries as an object or an array, as container is one.
func join(container []byte, list []entry) []byte {
	text := []byte{container[0]}
	for i, e := range list {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(append(text, e.before...), e.value...), e.after...)
	}
	return append(text, container[len(container)-1])
}
