package server_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"postrider/internal/testdb"
	"postrider/server/openapi"
)

// namesOf is openapi.yaml with its schemas and the query parameters of its lists.
type namesOf struct {
	Paths map[string]struct {
		Get struct {
			Parameters []struct {
				Name, In string
			}
		}
	}
	Components struct{ Schemas map[string]schema }
}

// resolved follows a reference, plain, in an allOf, or the first one in an anyOf.
func (n *namesOf) resolved(s schema) schema {
	for _, part := range slices.Concat(s.AllOf, s.AnyOf[:min(1, len(s.AnyOf))]) {
		if part.Ref != "" {
			s.Ref = part.Ref
		}
	}
	if s.Ref == "" {
		return s
	}
	return n.resolved(n.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")])
}

var (
	// objectRow is an object of the API, its list, if it has one, and its view.
	objectRow = regexp.MustCompile("(?m)^\\| `([A-Z]\\w+)` \\| (?:`GET (/v1[^`]*)` )?\\| `(\\w+)` \\|$")
	// differenceRow has properties of an object and their column, if there is one.
	differenceRow = regexp.MustCompile("(?m)^\\| `([A-Z]\\w+)` \\| (`[\\w.]+`(?:, `[\\w.]+`)*) \\| (?:`(\\w+)` )?\\|$")
	quotedName    = regexp.MustCompile("`([\\w.]+)`")
	capital       = regexp.MustCompile("[A-Z]")
)

// snake is the column of a property of the API, unless the page has another one.
func snake(name string) string {
	name = strings.ReplaceAll(strings.ReplaceAll(name, "InSeconds", "_seconds"), ".", "_")
	return capital.ReplaceAllStringFunc(name, func(c string) string { return "_" + strings.ToLower(c) })
}

// TestNamesInTheAPIAndInSQL: every property of every object that the API lists is a column, in snake case or by
// docs/reference/rest.md.
func TestNamesInTheAPIAndInSQL(t *testing.T) {
	t.Parallel()
	rows, err := testdb.Pool(t, testdb.New(t)).Query(t.Context(), "SELECT table_name || '.' || column_name "+
		"FROM information_schema.columns WHERE table_schema = 'postrider'")
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	columns := map[string]bool{}
	for _, name := range names {
		columns[name] = true
	}
	var spec namesOf
	require.NoError(t, yaml.Unmarshal(openapi.Document, &spec))
	page, err := os.ReadFile("../docs/reference/rest.md")
	require.NoError(t, err)

	different := map[string]string{} // columns by object and property; "" without a column
	for _, row := range differenceRow.FindAllStringSubmatch(string(page), -1) {
		for _, name := range quotedName.FindAllStringSubmatch(row[2], -1) {
			different[row[1]+"."+name[1]] = row[3]
		}
	}
	_, filters, _ := strings.Cut(string(page), "\n| Filter | Column |\n")
	// Users' queries are private, so no view has them.
	described, lists := map[string]bool{"SavedQuery": true}, map[string]bool{}
	for _, row := range objectRow.FindAllStringSubmatch(string(page), -1) {
		object, path, view := row[1], row[2], row[3]
		described[object] = true
		require.NotEmpty(t, spec.Components.Schemas[object].Properties, "openapi.yaml has no schema %s", object)
		var check func(prefix string, properties map[string]schema)
		check = func(prefix string, properties map[string]schema) {
			for name, property := range properties {
				name = prefix + name
				column, known := different[object+"."+name]
				delete(different, object+"."+name)
				nested := spec.resolved(property).Properties
				hasDifferences := slices.ContainsFunc(slices.Collect(maps.Keys(different)), func(other string) bool {
					return strings.HasPrefix(other, object+"."+name+".")
				})
				switch {
				case known && column == "":
				case known:
					require.True(t, columns[view+"."+column], "%s.%s: there is no column %s", object, name, column)
				case nested != nil && (hasDifferences || !columns[view+"."+snake(name)]):
					check(name+".", nested)
				default:
					require.True(t, columns[view+"."+snake(name)], "%s.%s: there is no column %s", object, name, snake(name))
				}
			}
		}
		check("", spec.Components.Schemas[object].Properties)
		if path == "" {
			continue
		}
		lists[path] = true
		for _, parameter := range spec.Paths[path].Get.Parameters {
			if parameter.In == "query" && !columns[view+"."+snake(parameter.Name)] {
				require.Contains(t, filters, "`"+parameter.Name+"`", "filters of GET %s", path)
			}
		}
	}
	require.Empty(t, different, "there are no such properties")
	for name, s := range spec.Components.Schemas {
		if items := s.Properties["value"].Items; strings.HasSuffix(name, "Page") && items != nil {
			require.True(t, described[strings.TrimPrefix(items.Ref, "#/components/schemas/")],
				"docs/reference/rest.md has no row for what %s lists", name)
		}
	}
	require.Len(t, lists, 12)
}
