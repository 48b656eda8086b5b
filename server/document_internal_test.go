package server

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"postrider/server/management"
	"postrider/server/openapi"
)

// TestDocumentIsThatOfTheFile: what the code declares is what openapi.yaml says, for each operation that is declared.
func TestDocumentIsThatOfTheFile(t *testing.T) {
	t.Parallel()
	s := &Server{}
	s.parts = management.Parts{}
	text, problems, err := openapi.Document(s.operations())
	require.NoError(t, err)
	require.Empty(t, slices.DeleteFunc(problems, func(p string) bool { return strings.HasSuffix(p, " is not used") }))
	var made, file any
	require.NoError(t, yaml.Unmarshal(text, &made))
	old, err := os.ReadFile("openapi.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(old, &file))
	for _, op := range s.operations() {
		// Settings are described by the tables of package spec.
		if op.In == nil || strings.HasPrefix(op.Path, "/v1/topics") || strings.HasPrefix(op.Path, "/v1/policies") {
			continue
		}
		path := regexp.MustCompile(`:(\w+)`).ReplaceAllString(op.Path, "{$1}")
		want, got := described(file, path, op.Method), described(made, path, op.Method)
		for place, value := range want {
			if got[place] != value {
				t.Errorf("%s: %s is %q, not %q", op.ID, place, got[place], value)
			}
			delete(got, place)
		}
		for place, value := range got {
			t.Errorf("%s: %s is %q, and not in openapi.yaml", op.ID, place, value)
		}
	}
}

// described is an operation with all references followed, as values by their place.
func described(doc any, path, method string) map[string]string {
	item := doc.(map[string]any)["paths"].(map[string]any)[path].(map[string]any)
	op := resolve(doc, item[strings.ToLower(method)]).(map[string]any)
	parameters := map[string]any{}
	for _, list := range []any{op["parameters"], resolve(doc, item["parameters"])} {
		list, _ := list.([]any)
		for _, p := range list {
			parameters[p.(map[string]any)["name"].(string)] = p
		}
	}
	op["parameters"] = parameters
	if body, has := op["requestBody"].(map[string]any); has && body["required"] == nil {
		body["required"] = false // the default
	}
	values := map[string]string{}
	flatten(values, "", op)
	return values
}

func flatten(values map[string]string, place string, v any) {
	switch v := v.(type) {
	case []any:
		for i := range v {
			flatten(values, fmt.Sprintf("%s[%d]", place, i), v[i])
		}
	case map[string]any:
		for name, member := range v {
			flatten(values, place+"."+name, member)
		}
	default:
		values[place] = fmt.Sprint(v)
	}
}

func resolve(doc, v any) any {
	switch v := v.(type) {
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = resolve(doc, v[i])
		}
		return list
	case map[string]any:
		if ref, is := v["$ref"].(string); is {
			at := doc
			for _, name := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
				at = at.(map[string]any)[name]
			}
			if at == nil {
				return "no " + ref
			}
			return resolve(doc, at)
		}
		found := map[string]any{}
		for name, member := range v {
			if !strings.HasPrefix(name, "x-go") {
				found[name] = resolve(doc, member)
			}
		}
		if all, is := found["allOf"].([]any); is && len(all) == 1 {
			for name, member := range all[0].(map[string]any) {
				if _, has := found[name]; !has {
					found[name] = member
				}
			}
			delete(found, "allOf")
		}
		if required, is := found["required"].([]any); is {
			sort.Slice(required, func(i, j int) bool { return fmt.Sprint(required[i]) < fmt.Sprint(required[j]) })
		}
		return found
	default:
		return v
	}
}
