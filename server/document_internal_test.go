package server

import (
	"encoding/json"
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
		if op.In == nil {
			continue
		}
		path := regexp.MustCompile(`:(\w+)`).ReplaceAllString(op.Path, "{$1}")
		require.Equal(t, described(file, path, op.Method), described(made, path, op.Method), "%s", op.ID)
	}
}

// described is an operation with all references followed.
func described(doc any, path, method string) string {
	item := doc.(map[string]any)["paths"].(map[string]any)[path].(map[string]any)
	op := item[strings.ToLower(method)].(map[string]any)
	parameters, _ := op["parameters"].([]any)
	shared, _ := item["parameters"].([]any)
	parameters = append(slices.Clone(parameters), shared...)
	resolved := resolve(doc, parameters).([]any)
	sort.Slice(resolved, func(i, j int) bool {
		return resolved[i].(map[string]any)["name"].(string) < resolved[j].(map[string]any)["name"].(string)
	})
	whole := resolve(doc, op).(map[string]any)
	whole["parameters"] = resolved
	text, err := json.MarshalIndent(whole, "", " ")
	if err != nil {
		panic(err)
	}
	return string(text)
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
