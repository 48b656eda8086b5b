package filter

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"postrider/jsonscan"
)

// EventView is what filters see of an event.
type EventView struct {
	// CloudEvent says which names the envelope has: type and source, or eventType, topic and dataVersion.
	CloudEvent bool
	// Custom says that Body is the publisher's own JSON. Its names are those of the Event Grid schema, with the values
	// above even where Body has a member of that name, data being the whole of Body; all other names are Body's own.
	Custom bool
	// Type is eventType or type.
	Type string
	// The other members of the envelope, "" where the event has none. Topic is the one an event is delivered with,
	// whatever the publisher wrote; Source is CloudEvents' own.
	ID, Subject, Topic, Source, DataVersion string
	// EventTime is of a custom event; the others have it in Body.
	EventTime string
	// Body is the event's JSON object. It is read only where a key is not one of the above.
	Body []byte
}

// Set is the filters of all event subscriptions of a topic, made ready so that an event's body is read once for all of
// them, and not at all where nothing is asked of it. It is never changed and may be used by many at once.
type Set struct {
	keySet
	filters []compiledFilter
}

// keySet is keys made ready to be looked up in an event, all of them at once.
type keySet struct {
	keys   []compiledKey
	root   node
	inBody bool // a key can only be found in the body
}

type compiledFilter struct {
	*Filter
	clauses []clause
}

// clause is an advanced filter with its operands read.
type clause struct {
	*operator // nil: not one that Validate would let through; it wants no event
	key       int
	arrays    bool
	numbers   []number // ranges are two each
	texts     [][]byte // folded
	truth     bool
}

type compiledKey struct {
	envelope  envelopeMember
	attribute bool // a CloudEvent's number or boolean here is a text too
}

// envelopeMember is a member that EventView holds decoded.
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

// envelopeNames are the names that a key may spell in any case, as Event Grid's own pages do ("ID", "Subject",
// "Data.Key1").
var envelopeNames = []string{
	"id", "subject", "eventType", "type", "topic", "source", "dataVersion", "data", "eventTime", "metadataVersion",
	"specversion", "time", "datacontenttype", "dataschema", "data_base64",
}

// NewSet makes filters ready. The places that Matching tells are places in this list. The filters must not be changed
// afterwards. A filter that Validate refuses is no error here: what cannot be read of it wants no event.
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

// keyTree is keys as a tree, before they are numbered.
type keyTree struct {
	root keyNode
	ends map[string]*keyNode // by key as it is spelled
}

type keyNode struct {
	isKey bool
	key   int
	below map[string]*keyNode
}

// add makes a key known; the same twice is nothing.
func (t *keyTree) add(key string) {
	if t.ends[key] == nil {
		t.ends[key] = t.root.add(splitKey(key))
	}
}

// set makes the keys ready. From then on each of ends has its key's number.
func (t *keyTree) set() keySet {
	s := keySet{root: node{key: -1}}
	s.keys = t.number(&s.root)
	s.inBody = slices.ContainsFunc(s.keys, func(k compiledKey) bool { return k.envelope == memberNone })
	return s
}

// add makes the nodes that are missing on a path and returns the last of it.
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

// number gives the keys their numbers from the top down, so that those below a node stand together, and returns them.
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

// splitKey returns the names that a key leads along, the first in the envelope's spelling.
func splitKey(key string) []string {
	path := strings.Split(key, ".")
	for _, name := range envelopeNames {
		if strings.EqualFold(name, path[0]) {
			path[0] = name
		}
	}
	return path
}

// compile reads an advanced filter's operands.
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

// add reads one operand.
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

// readText decodes a string. It reports surrogate halves, which decode to nothing that can be stored.
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
