package server_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"postrider/server"
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
	mappingRow = regexp.MustCompile("(?m)^\\| `(\\w+)`(?:, `GET (/v1[^`]*)`)? \\| `(\\w+)` " +
		"\\|([^|]*)\\|([^|]*)\\|([^|]*)\\|([^|]*)\\|$")
	mapping = regexp.MustCompile("`([\\w.]+)`(?: = `([\\w.]+)`)?")
	capital = regexp.MustCompile("[A-Z]")
)

// snake is a name of the API as SQL writes it.
func snake(name string) string {
	return capital.ReplaceAllStringFunc(name, func(c string) string { return "_" + strings.ToLower(c) })
}

// TestNamesInTheAPIAndInSQL: docs/reference/rest.md has every property of every object that the API lists, and the
// columns that it names exist.
func TestNamesInTheAPIAndInSQL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	columns := map[string]bool{}
	for _, row := range b.rows("SELECT table_name || '.' || column_name AS name FROM information_schema.columns " +
		"WHERE table_schema = 'postrider'") {
		columns[row["name"].(string)] = true
	}
	text, _, err := server.Document()
	require.NoError(t, err)
	var spec namesOf
	require.NoError(t, yaml.Unmarshal(text, &spec))
	page, err := os.ReadFile("../docs/reference/rest.md")
	require.NoError(t, err)

	described, lists := map[string]bool{}, map[string]bool{}
	for _, row := range mappingRow.FindAllStringSubmatch(string(page), -1) {
		object, path, view := row[1], row[2], row[3]
		described[object] = true
		column := func(name, in string) {
			if !strings.Contains(name, ".") {
				name = view + "." + name
			}
			require.True(t, columns[name], "%s of %s: there is no column %s", in, object, name)
		}
		whole, parts := map[string]bool{}, map[string][]string{}
		for i, cell := range row[4:7] {
			for _, pair := range mapping.FindAllStringSubmatch(cell, -1) {
				require.Equal(t, i == 1, pair[2] != "", "%s: %s stands in the wrong column", object, pair[0])
				switch i {
				case 0:
					column(snake(pair[1]), pair[1])
				case 1:
					column(pair[2], pair[1])
				}
				if first, rest, nested := strings.Cut(pair[1], "."); nested {
					parts[first] = append(parts[first], rest)
					continue
				}
				require.False(t, whole[pair[1]], "%s has %s twice", object, pair[1])
				whole[pair[1]] = true
			}
		}
		properties := spec.Components.Schemas[object].Properties
		require.NotEmpty(t, properties, "openapi.yaml has no schema %s", object)
		for name, property := range properties {
			if nested := parts[name]; nested != nil {
				require.ElementsMatch(t, namesIn(spec.resolved(property).Properties), nested, "%s.%s", object, name)
				delete(parts, name)
				continue
			}
			require.True(t, whole[name], "docs/reference/rest.md says nothing of %s.%s", object, name)
			delete(whole, name)
		}
		require.Empty(t, whole, "%s has no such properties", object)
		require.Empty(t, parts, "%s has no such properties", object)

		var filters []string
		for _, pair := range mapping.FindAllStringSubmatch(row[7], -1) {
			filters = append(filters, pair[1])
			if pair[2] == "" {
				pair[2] = snake(pair[1])
			}
			column(pair[2], "filter "+pair[1])
		}
		if path == "" {
			require.Empty(t, filters, object)
			continue
		}
		lists[path] = true
		var taken []string
		for _, parameter := range spec.Paths[path].Get.Parameters {
			if parameter.In == "query" {
				taken = append(taken, parameter.Name)
			}
		}
		require.ElementsMatch(t, taken, filters, "filters of GET %s", path)
	}
	for name, s := range spec.Components.Schemas {
		if items := s.Properties["value"].Items; strings.HasSuffix(name, "Page") && items != nil {
			require.True(t, described[strings.TrimPrefix(items.Ref, "#/components/schemas/")],
				"docs/reference/rest.md has no row for what %s lists", name)
		}
	}
	require.Len(t, lists, 11)
}

func namesIn(properties map[string]schema) (names []string) {
	for name := range properties {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
