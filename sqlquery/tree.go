package sqlquery

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxSearched is the longest text, in bytes, that replace() and similar functions may search for. Their time is the
// product of two lengths, and PostgreSQL cannot cancel them.
const maxSearched = 64

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
	// functionCall, constant and parameter are the beginnings of nodes.
	functionCall = regexp.MustCompile(`^\{FUNCEXPR :funcid (\d+) `)
	constant     = regexp.MustCompile(`^\{CONST [^{}]*:constvalue (?:<>|(\d+) )`)
	parameter    = regexp.MustCompile(`^\{PARAM :paramkind 0 :paramid (\d+) `)
	// unsafeTypes are xml, path and polygon with their arrays: PostgreSQL does not cancel what it computes with them.
	unsafeTypes = []string{"142", "143", "602", "1019", "604", "1027"}
)

// uses are OIDs that the tree of a query (pg_node_tree) names.
type uses struct {
	functions, types []string
	// searches are functions with a second argument that may be longer than maxSearched.
	searches []string
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
	queries = len(walk(tree, func(node string, children []string) {
		if call := functionCall.FindStringSubmatch(node); call != nil && len(children) > 1 && !isShort(children[1], args) {
			u.searches = append(u.searches, call[1])
		}
	}))
	for _, list := range []*[]string{&u.functions, &u.types, &u.searches} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return u, queries
}

// isShort reports whether a node is a constant or a parameter of at most maxSearched bytes.
func isShort(node string, args []string) bool {
	if found := parameter.FindStringSubmatch(node); found != nil {
		n, err := strconv.Atoi(found[1])
		return err == nil && n <= len(args) && len(args[n-1]) <= maxSearched
	}
	found := constant.FindStringSubmatch(node)
	if found == nil {
		return false
	}
	const header = 4 // of PostgreSQL, before the bytes
	size, _ := strconv.Atoi(found[1])
	return size <= maxSearched+header
}

// walk calls visit for each node of a tree after the nodes in it, with its direct children, and returns the outermost
// nodes.
func walk(tree string, visit func(node string, children []string)) []string {
	starts, levels := []int{}, [][]string{nil}
	for i := 0; i < len(tree); i++ {
		switch tree[i] {
		case '\\': // the next character belongs to a name
			i++
		case '{':
			starts, levels = append(starts, i), append(levels, nil)
		case '}':
			last := len(starts) - 1
			if last < 0 {
				continue
			}
			node, children := tree[starts[last]:i+1], levels[last+1]
			visit(node, children)
			starts, levels = starts[:last], levels[:last+1]
			levels[last] = append(levels[last], node)
		}
	}
	return levels[0]
}
