package filter

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"postrider/internal/jsonscan"
)

// EventView is the part of an event that filters read.
type EventView struct {
	// CloudEvent selects the names of the envelope: type and source, or eventType, topic and dataVersion.
	CloudEvent bool
	// Custom: Body is the publisher's own JSON. Names of the Event Grid schema have the values below, even if Body has a
	// member of that name, and data is the whole of Body; all other names are Body's.
	Custom bool
	// Type is eventType or type.
	Type string
	// ID to DataVersion are other members of the envelope, "" if the event has none. Topic is the delivered one; Source is
	// CloudEvents' own.
	ID, Subject, Topic, Source, DataVersion string
	// EventTime is of a custom event; the others have it in Body.
	EventTime string
	// Body is the event's JSON object. It is read only for keys that are not above.
	Body []byte
}

// Set is the filters of all event subscriptions of a topic, prepared so that an event's body is read at most once. It
// is immutable and safe for concurrent use.
type Set struct {
	keySet
	filters []compiledFilter
}

// keySet is keys that are looked up in an event all at once.
type keySet struct {
	keys   []compiledKey
	root   node
	inBody bool // a key is only in the body
}

type compiledFilter struct {
	*Filter
	clauses []clause
}

// clause is an advanced filter with decoded operands.
type clause struct {
	*operator // nil: invalid, matches no event
	key       int
	arrays    bool
	numbers   []number // two for a range
	texts     [][]byte // folded
	truth     bool
}

type compiledKey struct {
	envelope  envelopeMember
	attribute bool // a CloudEvent's number or boolean at this key is also a text
}

// envelopeMember is a member that EventView has.
type envelopeMember uint8

const (
	memberNone envelopeMember = iota
	memberID
	memberSubject
	memberEventType
	memberType
	memberTopic
	memberSource
	memberDataVersion
	memberEventTime
	memberMetadataVersion
)

var envelopeMembers = map[string]envelopeMember{
	"id": memberID, "subject": memberSubject, "eventType": memberEventType, "type": memberType, "topic": memberTopic,
	"source": memberSource, "dataVersion": memberDataVersion, "eventTime": memberEventTime,
	"metadataVersion": memberMetadataVersion,
}

// envelopeNames are the names that keys have in any case, as on Event Grid's pages ("ID", "Subject", "Data.Key1").
var envelopeNames = []string{
	"id", "subject", "eventType", "type", "topic", "source", "dataVersion", "data", "eventTime", "metadataVersion",
	"specversion", "time", "datacontenttype", "dataschema", "data_base64",
}

// NewSet prepares filters, whose indexes in the list are those that Matching returns. Do not change them afterwards. An
// invalid filter matches no event.
func NewSet(filters []*Filter) *Set {
	s := &Set{filters: make([]compiledFilter, len(filters))}
	tree := &keyTree{ends: map[string]*keyNode{}}
	for _, f := range filters {
		for i := range f.AdvancedFilters {
			tree.add(f.AdvancedFilters[i].Key)
		}
	}
	s.keySet = tree.set()
	for i, f := range filters {
		s.filters[i].Filter = f
		for k := range f.AdvancedFilters {
			a := &f.AdvancedFilters[k]
			c := a.compile()
			c.key, c.arrays = tree.ends[a.Key].key, f.EnableAdvancedFilteringOnArrays
			s.filters[i].clauses = append(s.filters[i].clauses, c)
		}
	}
	return s
}

// keyTree is a tree of keys before they have numbers.
type keyTree struct {
	root keyNode
	ends map[string]*keyNode // by key as written
}

type keyNode struct {
	isKey bool
	key   int
	below map[string]*keyNode
}

// add adds a key, once.
func (t *keyTree) add(key string) {
	if t.ends[key] == nil {
		path := strings.Split(key, ".")
		for _, name := range envelopeNames {
			if strings.EqualFold(name, path[0]) {
				path[0] = name
			}
		}
		t.ends[key] = t.root.add(path)
	}
}

// set numbers the keys, also in ends.
func (t *keyTree) set() keySet {
	s := keySet{root: node{key: -1}}
	s.keys = t.number(&s.root)
	s.inBody = slices.ContainsFunc(s.keys, func(k compiledKey) bool { return k.envelope == memberNone })
	return s
}

// add adds the missing nodes of a path and returns its last one.
func (n *keyNode) add(path []string) *keyNode {
	for _, name := range path {
		if n.below == nil {
			n.below = map[string]*keyNode{}
		}
		if n.below[name] == nil {
			n.below[name] = &keyNode{}
		}
		n = n.below[name]
	}
	n.isKey = true
	return n
}

// number numbers the keys from the root, so that those below a node are consecutive, and returns them.
func (t *keyTree) number(root *node) []compiledKey {
	var keys []compiledKey
	var visit func(from *keyNode, to *node, path []string)
	visit = func(from *keyNode, to *node, path []string) {
		to.from = len(keys)
		if from.isKey {
			from.key, to.key = len(keys), len(keys)
			keys = append(keys, newCompiledKey(path))
		}
		for _, name := range slices.Sorted(maps.Keys(from.below)) {
			c := &node{name: name, key: -1}
			visit(from.below[name], c, append(path, name))
			to.children = append(to.children, c)
		}
		to.to = len(keys)
		to.makeIndex()
	}
	visit(&t.root, root, nil)
	return keys
}

func (n *node) makeIndex() {
	if len(n.children) < manyChildren {
		return
	}
	n.index = make(map[string]*node, len(n.children))
	for _, c := range n.children {
		n.index[c.name] = c
	}
}

func newCompiledKey(path []string) compiledKey {
	if len(path) != 1 {
		return compiledKey{}
	}
	return compiledKey{envelope: envelopeMembers[path[0]], attribute: path[0] != "data"}
}

// compile decodes an advanced filter's operands.
func (a *AdvancedFilter) compile() clause {
	op := operatorOf(a.OperatorType)
	if op == nil {
		return clause{}
	}
	c := clause{operator: op}
	raws := a.operands(op)
	for _, raw := range raws {
		if !c.add(raw) {
			return clause{}
		}
	}
	if op.operand != operandNone && len(raws) == 0 {
		return clause{}
	}
	return c
}

// add decodes one operand.
func (c *clause) add(raw json.RawMessage) bool {
	switch c.operand {
	case operandNumber:
		return c.addNumber(raw)
	case operandRange:
		from, to, ok := readPair(raw)
		return ok && c.addNumber(from) && c.addNumber(to)
	case operandBool:
		c.truth = string(raw) == "true"
		return c.truth || string(raw) == "false"
	case operandText:
		text, _, ok := readText(raw)
		c.texts = append(c.texts, appendFold(nil, text))
		return ok
	case operandNone:
	}
	return true
}

func (c *clause) addNumber(raw json.RawMessage) bool {
	if !isNumber(raw) {
		return false
	}
	c.numbers = append(c.numbers, readNumber(raw))
	return true
}

func isNumber(raw json.RawMessage) bool {
	return len(raw) > 0 && (raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9') && json.Valid(raw)
}

// readText decodes a string. lone reports a lone surrogate, which cannot be stored.
func readText(raw json.RawMessage) (text []byte, lone, ok bool) {
	if len(raw) == 0 || raw[0] != '"' || !json.Valid(raw) {
		return nil, false, false
	}
	text, lone = jsonscan.Unescape(raw[1 : len(raw)-1])
	return text, lone, true
}

// readPair reads a range.
func readPair(raw json.RawMessage) (from, to json.RawMessage, ok bool) {
	var ends []json.RawMessage
	if json.Unmarshal(raw, &ends) != nil || len(ends) != 2 {
		return nil, nil, false
	}
	return ends[0], ends[1], true
}

// Keys looks up several keys of an event at once. It is immutable and safe for concurrent use.
type Keys struct {
	set     keySet
	indexes []int // in set, by index in NewKeys' list
}

// NewKeys prepares keys, written as in Filter.AdvancedFilters.
func NewKeys(keys []string) *Keys {
	tree := &keyTree{ends: map[string]*keyNode{}}
	for _, key := range keys {
		tree.add(key)
	}
	k := &Keys{set: tree.set()}
	for _, key := range keys {
		k.indexes = append(k.indexes, tree.ends[key].key)
	}
	return k
}

// Each calls use with the index of each key in NewKeys' list and the event's value as text. Keys without a string,
// number or boolean are left out. Numbers keep their digits.
func (k *Keys) Each(view *EventView, use func(i int, text string)) {
	e := evaluations.Get().(*evaluation)
	e.read(&k.set, view)
	for i, index := range k.indexes {
		if text, ok := e.values[index].scalar(); ok {
			use(i, text)
		}
	}
	e.release()
}
