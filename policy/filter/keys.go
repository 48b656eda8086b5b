package filter

// Keys looks up several keys of an event at once. It is immutable and safe for concurrent use.
type Keys struct {
	set     keySet
	indexes []int // in set, by place in the list that NewKeys got
}

// NewKeys prepares keys, spelled as in Filter.AdvancedFilters.
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

// Each calls use with the place of each key in NewKeys' list and the event's value there as text. Keys without a
// string, number or boolean are left out. Numbers keep their digits.
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
