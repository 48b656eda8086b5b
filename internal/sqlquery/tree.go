package sqlquery

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Some functions take as long as the product of the sizes of two arguments, and PostgreSQL cannot cancel them:
//   - replace() and similar ones, LIKE and formats of times: the second argument must be known and have at most
//     maxSearched bytes.
//   - translate() and trim(): at most maxSet. With 63 bytes, 10 MB take more than 10 s.
//   - @> and && of arrays and jsonb, ?| and ?&: one argument must be known and have at most maxContained.
const maxSet, maxSearched, maxContained = 8, 64, 1024

var (
	joins = regexp.MustCompile(`(?i)\bjoin\b`)
	// oidField is a field of a tree that has an OID or a list of OIDs, among others. Names of the query cannot look like
	// one, because a backslash stands before each of their spaces.
	oidField      = regexp.MustCompile(`:(\w+) \(?(?:o )?(\d+(?: \d+)*)`)
	functionField = regexp.MustCompile(`^(funcid|opfuncid|hashfuncid|negfuncid|aggfnoid|winfnoid|tsmhandler|` +
		`startInRangeFunc|endInRangeFunc)$`)
	// converted are the fields with the type of a value that the query makes from another one, or from a text.
	converted = regexp.MustCompile(`^(consttype|paramtype|funcresulttype|resulttype|typid|typeId|funccoltypes|coltypes)$`)
	typeField = regexp.MustCompile(`(?i)type?(s|id)?$`)
	// call, constant, parameter and sum are the beginnings of nodes; sum is one that is as long as its parts: ||, lower()
	// and upper() of texts, arrays.
	call      = regexp.MustCompile(`^\{(?:FUNCEXPR :funcid|(?:SCALARARRAY)?OPEXPR :opno \d+ :opfuncid) (\d+) `)
	constant  = regexp.MustCompile(`^\{CONST [^{}]*:constvalue (?:<>|(\d+) )`)
	parameter = regexp.MustCompile(`^\{PARAM :paramkind 0 :paramid (\d+) `)
	sum       = regexp.MustCompile(`^\{(?:RELABELTYPE|ARRAYEXPR|OPEXPR :opno \d+ :opfuncid 1258|FUNCEXPR :funcid 87[01]) `)
	// unsafeTypes are xml, path, polygon and jsonpath with their arrays: PostgreSQL does not cancel what it computes with
	// them. A jsonpath can compare each element of one array with each of another: $.a[*] == $.b[*].
	unsafeTypes = []string{"142", "143", "602", "1019", "604", "1027", "4072", "4073"}
)

// uses are OIDs that the tree of a query (pg_node_tree) names.
type uses struct {
	functions, types []string
	// sets and searches are functions with a second argument that may be longer than maxSet and maxSearched, and products
	// those with two that may be longer than maxContained.
	sets, searches, products []string
}

// usesOf returns what the tree uses, and the number of its queries.
func usesOf(tree string, args []string) (u uses, queries int) {
	for _, field := range oidField.FindAllStringSubmatch(tree, -1) {
		name, ids := field[1], strings.Fields(field[2])
		switch {
		case functionField.MatchString(name):
			u.functions = append(u.functions, ids...)
		case converted.MatchString(name):
			u.types = append(u.types, ids...)
		case typeField.MatchString(name):
			for _, id := range ids {
				if slices.Contains(unsafeTypes, id) {
					u.types = append(u.types, id)
				}
			}
		}
	}
	queries = len(walk(tree, func(head string, sizes []int) int {
		if found := call.FindStringSubmatch(head); found != nil && len(sizes) > 1 {
			if sizes[1] > maxSet {
				u.sets = append(u.sets, found[1])
			}
			if sizes[1] > maxSearched {
				u.searches = append(u.searches, found[1])
			}
			if min(sizes[0], sizes[1]) > maxContained {
				u.products = append(u.products, found[1])
			}
		}
		return sizeOf(head, sizes, args)
	}))
	for _, list := range []*[]string{&u.functions, &u.types, &u.sets, &u.searches, &u.products} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return u, queries
}

// sizeOf is the size of a value in bytes, or at least math.MaxInt32 if it depends on data. sizes are those of the nodes
// directly in its node.
func sizeOf(head string, sizes []int, args []string) (size int) {
	if found := parameter.FindStringSubmatch(head); found != nil {
		if n, err := strconv.Atoi(found[1]); err == nil && n <= len(args) {
			return len(args[n-1])
		}
	}
	if found := constant.FindStringSubmatch(head); found != nil {
		const header = 4 // of PostgreSQL, before the bytes
		size, _ = strconv.Atoi(found[1])
		return max(0, size-header)
	}
	if !sum.MatchString(head) {
		return math.MaxInt32
	}
	for _, s := range sizes {
		size += s
	}
	return size
}

// walk calls visit for each node of a tree after the nodes in it, with the text before its first child and the sizes of
// its direct children, and returns the sizes of the outermost nodes. It passes each part of the tree to visit at most
// once: nodes can be nested by the thousand.
func walk(tree string, visit func(head string, sizes []int) int) []int {
	type level struct {
		start, end int // of the head; end 0 = no child yet
		sizes      []int
	}
	levels := []level{{}}
	for i := 0; i < len(tree); i++ {
		last := len(levels) - 1
		switch tree[i] {
		case '\\': // the next character belongs to a name
			i++
		case '{':
			if levels[last].end == 0 {
				levels[last].end = i
			}
			levels = append(levels, level{start: i})
		case '}':
			if last == 0 {
				continue
			}
			node := levels[last]
			if node.end == 0 {
				node.end = i + 1
			}
			levels = levels[:last]
			parent := &levels[last-1]
			parent.sizes = append(parent.sizes, visit(tree[node.start:node.end], node.sizes))
		}
	}
	return levels[0].sizes
}
