package openapi

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// Text of the document never becomes markup.
func TestReferenceEscapes(t *testing.T) {
	t.Parallel()
	const hostile = `</code><script>alert(1)</script>`
	file, err := readAPIFile([]byte(`
info: {title: x, description: "a ` + "`" + hostile + "`" + ` b"}
tags: [{name: t, description: "` + hostile + `"}]
paths:
  "/` + hostile + `/{p}":
    get: {tags: [t], operationId: o, x-access: read, summary: "` + hostile + `", description: "` + hostile +
		`", parameters: [{name: "` + hostile + `", in: query, description: "` + hostile + `", schema: {enum: ["` +
		hostile + `"]}}],
      requestBody: {content: {"` + hostile + `": {schema: {}, examples: {e: {value: "` + hostile +
		`"}}}}}, responses: {'200': {description: "` + hostile + `", content: {text/plain: {example: "` + hostile + `"}}}}}
components: {schemas: {S: {description: "` + hostile + `", properties: {"` + hostile + `": {type: string, default: "` +
		hostile + `"}}}}}`))
	require.NoError(t, err)
	page, err := renderReference(file)
	require.NoError(t, err)
	require.NotContains(t, string(page.plain), "<script>alert")
	require.Contains(t, string(page.plain), "&lt;script&gt;alert")
}

func TestPrintJSON(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`{b: 1, a: [true, null, 2.50, '3'], c: {}, d: []}`: `{"b": 1, "a": [true, null, 2.50, "3"], "c": {}, "d": []}`,
		`'<&>"'`:                 `"<&>\""`,
		`'2026-11-20T09:30:00Z'`: `"2026-11-20T09:30:00Z"`,
		`2026-11-20`:             `"2026-11-20"`,
		`{first: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,` +
			` second: [bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb, c]}`: "{\n  \"first\": " +
			"\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\",\n" +
			"  \"second\": [\"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\", \"c\"]\n}",
	} {
		var node yaml.Node
		require.NoError(t, yaml.Unmarshal([]byte(given), &node))
		require.Equal(t, want, printJSON(node.Content[0]))
	}
	require.Equal(t, `'it'\''s'`, shellQuoted("it's"))
}

func TestParagraphs(t *testing.T) {
	t.Parallel()
	require.Equal(t, [][]phrase{{{"say ", false}, {"this", true}, {" now", false}}, {{"and that", false}}},
		paragraphs("say `this`\nnow\n\nand that\n"))
	require.Nil(t, paragraphs(""))
}

func TestRules(t *testing.T) {
	t.Parallel()
	none := "null"
	for want, s := range map[string]apiSchema{
		"1 to 7":               {Minimum: "1", Maximum: "7"},
		"at least 1":           {Minimum: "1"},
		"at most 5 characters": {MaxLength: "5"},
		"each 1 to 2":          {Items: &apiSchema{Minimum: "1", Maximum: "2"}},
		"a, b":                 {Enum: []string{"a", "b"}},
		"default null":         {Default: &none},
	} {
		require.Equal(t, []string{want}, rules(&s))
	}
}
