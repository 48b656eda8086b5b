package main

import (
	"fmt"
	"iter"
	"slices"

	"go.yaml.in/yaml/v3"
)

// members are the members of a mapping in their order.
func members(n *yaml.Node) iter.Seq2[string, *yaml.Node] {
	return func(yield func(string, *yaml.Node) bool) {
		if n == nil || n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i < len(n.Content); i += 2 {
			if !yield(n.Content[i].Value, n.Content[i+1]) {
				return
			}
		}
	}
}

// indexOf is the index of a name in the content of a mapping; -1 if it is absent.
func indexOf(n *yaml.Node, name string) int {
	for i := 0; n != nil && n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return i
		}
	}
	return -1
}

// find is the value at a path of names; nil if it is absent.
func find(n *yaml.Node, names ...string) *yaml.Node {
	for _, name := range names {
		at := indexOf(n, name)
		if at < 0 {
			return nil
		}
		n = n.Content[at+1]
	}
	return n
}

// textAt is the scalar of a name; "" if it is absent.
func textAt(n *yaml.Node, name string) string {
	if found := find(n, name); found != nil {
		return found.Value
	}
	return ""
}

// mapping is a mapping with members: names, each before its value.
func mapping(members ...any) *yaml.Node { return set(&yaml.Node{Kind: yaml.MappingNode}, members...) }

// set sets members of a mapping: names, each before its value.
func set(n *yaml.Node, members ...any) *yaml.Node {
	for pair := range slices.Chunk(members, 2) {
		name, value := pair[0].(string), node(pair[1])
		if at := indexOf(n, name); at >= 0 {
			n.Content[at+1] = value
			continue
		}
		n.Content = append(n.Content, node(name), value)
	}
	return n
}

// need is the mapping of a name, which is added if it is absent.
func need(n *yaml.Node, name string) *yaml.Node {
	if indexOf(n, name) < 0 {
		set(n, name, mapping())
	}
	return find(n, name)
}

func remove(n *yaml.Node, name string) {
	if at := indexOf(n, name); at >= 0 {
		n.Content = slices.Delete(n.Content, at, at+2)
	}
}

// node is a value as YAML; a node is itself.
func node(value any) *yaml.Node {
	if is, ok := value.(*yaml.Node); ok {
		return is
	}
	n := new(yaml.Node)
	if err := n.Encode(value); err != nil {
		panic(fmt.Sprintf("encode %v as YAML: %v", value, err))
	}
	return n
}

// scalar is the number or word in a tag.
func scalar(text string) *yaml.Node {
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(text), &n); err != nil || len(n.Content) != 1 {
		return node(text)
	}
	return n.Content[0]
}

// referTo is a reference to a component.
func referTo(kind, name string) *yaml.Node {
	n := mapping("$ref", "#/components/"+kind+"/"+name)
	n.Style = yaml.FlowStyle
	return n
}

// expand is a copy of a node in which aliases and merge keys (<<) are replaced by copies of their anchors' nodes.
func expand(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return expand(n.Alias)
	}
	copied := *n
	copied.Anchor, copied.Content = "", nil
	for i, child := range n.Content {
		switch {
		case n.Kind != yaml.MappingNode:
			copied.Content = append(copied.Content, expand(child))
		case i%2 == 0:
		case n.Content[i-1].Value == "<<":
			for name, value := range members(expand(child)) {
				set(&copied, name, value)
			}
		default:
			set(&copied, n.Content[i-1].Value, expand(child))
		}
	}
	return &copied
}
