package operator

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"postrider/internal/event"
	"postrider/internal/jsonscan"
	"postrider/internal/postgres"
)

// Patch is a JSON merge patch (RFC 7396), which is an object. It changes JSON documents in one pass. What it does not
// name keeps its bytes: white space, escapes, and numbers of any size.
type Patch struct{ root *patchValue }

// patchValue is a value of a patch: an object with members, or any other text.
type patchValue struct {
	text    []byte
	object  bool
	names   []string // in order, each once
	members map[string]*patchValue
	name    []byte // as it is in the patch
}

// maxPaths is how many paths of a patch operations and the audit list, as postrider_internal.patch_paths does for the
// edit of one event.
const maxPaths = 100

// parsePatch reads a patch, which is nested no deeper than an event may be. *FunctionError that is ErrInvalid.
func parsePatch(text []byte) (*Patch, error) {
	text = bytes.TrimSpace(text)
	if !utf8.Valid(text) || !json.Valid(text) || text[0] != '{' {
		return nil, postgres.Invalid("mergePatch", "mergePatch must be a JSON object (RFC 7396)")
	}
	s := &jsonscan.Scanner{Text: text, MaxDepth: event.DefaultLimits().MaxDepth}
	root := readPatch(s)
	if s.Problem != "" {
		return nil, postgres.Invalid("mergePatch", "mergePatch is %s, the most for an event", s.Problem)
	}
	return &Patch{root}, nil
}

func readPatch(s *jsonscan.Scanner) *patchValue {
	p, begin := &patchValue{}, s.Pos
	if p.object = s.Peek() == '{'; p.object {
		p.members = map[string]*patchValue{}
		s.Object(func(raw []byte) bool {
			unescaped, _ := jsonscan.Unescape(raw)
			name := string(unescaped)
			if p.members[name] == nil {
				p.names = append(p.names, name)
			}
			p.members[name] = readPatch(s) // of equal names the last one counts
			p.members[name].name = raw
			return s.Problem == ""
		})
	} else {
		s.Value()
	}
	p.text = s.Text[begin:s.Pos]
	return p
}

// removes reports whether the value removes a member.
func (p *patchValue) removes() bool { return !p.object && string(p.text) == "null" }

// paths returns what the patch changes, as JSON Pointers, the first 100 in its order.
func (p *Patch) paths() []string { return p.root.paths(nil, "") }

func (p *patchValue) paths(list []string, at string) []string {
	if !p.object || at != "" && len(p.names) == 0 {
		return append(list, at)
	}
	for _, name := range p.names {
		if len(list) == maxPaths {
			break
		}
		list = p.members[name].paths(list, at+"/"+pointerEscapes.Replace(name))
	}
	return list
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// Apply returns the changed document, which must be JSON.
func (p *Patch) Apply(document []byte) []byte {
	m := merger{in: jsonscan.Scanner{Text: document}}
	m.in.Space()
	m.out.Write(document[:m.in.Pos])
	m.merge(p.root)
	m.out.Write(document[m.in.Pos:])
	return m.out.Bytes()
}

// merger reads a document and writes the changed one.
type merger struct {
	in  jsonscan.Scanner
	out bytes.Buffer
}

// merge reads a value and writes what the patch makes of it.
func (m *merger) merge(p *patchValue) {
	if !p.object || m.in.Peek() != '{' {
		m.in.Value()
		m.write(p)
		return
	}
	seen, empty, from := map[string]bool{}, true, m.in.Pos+1
	m.out.WriteByte('{')
	m.in.Object(func(raw []byte) bool {
		unescaped, _ := jsonscan.Unescape(raw)
		change, begin := p.members[string(unescaped)], m.in.Pos
		if change != nil {
			seen[string(unescaped)] = true
		}
		if change != nil && change.removes() {
			m.in.Value()
			m.in.Space()
		} else {
			m.separate(&empty)
			m.out.Write(m.in.Text[from:begin])
			if change == nil {
				m.in.Value()
				m.out.Write(m.in.Text[begin:m.in.Pos])
			} else {
				m.merge(change)
			}
			end := m.in.Pos
			m.in.Space()
			m.out.Write(m.in.Text[end:m.in.Pos])
		}
		from = m.in.Pos + 1
		return true
	})
	if space := m.in.Text[min(from, m.in.Pos-1) : m.in.Pos-1]; empty {
		m.out.Write(space) // of an object without members
	}
	m.add(p, seen, &empty)
	m.out.WriteByte('}')
}

// write writes a value of the patch as a new one: without its members that are null.
func (m *merger) write(p *patchValue) {
	if !p.object {
		m.out.Write(p.text)
		return
	}
	empty := true
	m.out.WriteByte('{')
	m.add(p, nil, &empty)
	m.out.WriteByte('}')
}

// add writes the members of a patch that the object did not have.
func (m *merger) add(p *patchValue, seen map[string]bool, empty *bool) {
	for _, name := range p.names {
		if change := p.members[name]; !seen[name] && !change.removes() {
			m.separate(empty)
			m.out.WriteByte('"')
			m.out.Write(change.name)
			m.out.WriteString(`":`)
			m.write(change)
		}
	}
}

// separate writes the comma before a member that is not the first one.
func (m *merger) separate(empty *bool) {
	if !*empty {
		m.out.WriteByte(',')
	}
	*empty = false
}
