package display

import (
	"bytes"
	"encoding/json"
	"strings"
)

// maxDepth is how deep JSON may be nested to be indented: 4,000 brackets, which any publisher may send, would become
// 16 MB of spaces.
const maxDepth = 64

// Pretty breaks JSON into lines for reading. Numbers and escapes stay as the publisher wrote them. Texts that are not
// JSON, and JSON that is nested too deep, stay as they are.
func Pretty(text string) string {
	var out bytes.Buffer
	if depthOf(text) > maxDepth || json.Indent(&out, []byte(strings.TrimSpace(text)), "", "  ") != nil {
		return text
	}
	return out.String()
}

// depthOf is the depth of JSON; brackets in its strings may make it larger.
func depthOf(text string) (deepest int) {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		}
	}
	return deepest
}
