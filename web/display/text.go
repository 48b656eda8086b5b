package display

import (
	"encoding/json"
	"html/template"
	"strings"
)

// maxHighlighted limits the JSON that Highlight marks, in bytes: marks make it up to ten times as long.
const maxHighlighted = 64 << 10

// Highlight is a text as HTML, escaped. If it is JSON, its names, texts, numbers and literals are marked.
func Highlight(text string) template.HTML {
	if len(text) > maxHighlighted || !json.Valid([]byte(text)) {
		return template.HTML(template.HTMLEscapeString(text)) //nolint:gosec // it is escaped
	}
	var out strings.Builder
	for text != "" {
		class, size := tokenOf(text)
		if class != "" {
			out.WriteString(`<span class="json-` + class + `">`)
		}
		template.HTMLEscape(&out, []byte(text[:size]))
		if class != "" {
			out.WriteString("</span>")
		}
		text = text[size:]
	}
	return template.HTML(out.String()) //nolint:gosec // each token is escaped
}

// tokenOf is the class and the length of the first token of valid JSON; the class of brackets, commas and white space
// is "".
func tokenOf(text string) (class string, size int) {
	switch c := text[0]; {
	case c == '"':
		size = 1
		for ; text[size] != '"'; size++ {
			if text[size] == '\\' {
				size++
			}
		}
		size++
		if strings.HasPrefix(strings.TrimLeft(text[size:], " \t\r\n"), ":") {
			return "name", size
		}
		return "text", size
	case c == '-' || c >= '0' && c <= '9':
		return "number", spanOf(text, "+-.0123456789eE")
	case c >= 'a' && c <= 'z':
		return "literal", spanOf(text, "aeflnrstu")
	default:
		return "", max(1, spanOf(text, " \t\r\n{}[],:"))
	}
}

// spanOf is the number of bytes that text has of a set before the first other one.
func spanOf(text, set string) int { return len(text) - len(strings.TrimLeft(text, set)) }

// Header is a header of a request or a response.
type Header struct{ Name, Value string }

// Headers are the headers of a stored text, one per line. The last one may be cut off.
func Headers(text string) (headers []Header) {
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		if name != "" {
			headers = append(headers, Header{name, strings.TrimSpace(value)})
		}
	}
	return headers
}
