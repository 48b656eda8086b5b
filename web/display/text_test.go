package display

import (
	"html"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHighlight(t *testing.T) {
	t.Parallel()
	require.Equal(t, `{<span class="json-name">&#34;a&lt;&#34;</span>: [`+
		`<span class="json-text">&#34;b\&#34;:&#34;</span>, `+
		`<span class="json-number">-1.5e+3</span>, <span class="json-literal">true</span>]}`,
		string(Highlight(`{"a<": ["b\":", -1.5e+3, true]}`)))
	require.Equal(t, "&lt;b&gt;no JSON&lt;/b&gt;", string(Highlight("<b>no JSON</b>")))
	require.Empty(t, Highlight(""))
	long := `"` + strings.Repeat("<", maxHighlighted) + `"`
	require.NotContains(t, Highlight(long), "span")
}

// Without the marks, the text is the same, and no character of it is markup.
func FuzzHighlight(f *testing.F) {
	for _, seed := range []string{`{"a":[1,null,"<script>\u003c"]}`, `"\\"`, "[\n]", `<`, `-0.1E-2`, "\"\xff\""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		marked := string(Highlight(text))
		for _, class := range []string{"name", "text", "number", "literal"} {
			marked = strings.ReplaceAll(marked, `<span class="json-`+class+`">`, "")
		}
		marked = strings.ReplaceAll(marked, "</span>", "")
		require.NotContains(t, marked, "<")
		require.Equal(t, strings.ReplaceAll(text, "\x00", "\ufffd"), html.UnescapeString(marked))
	})
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	require.Equal(t, []Header{{"Content-Type", "text/plain"}, {"X-Time", "10:30"}, {"X-Cut", ""}},
		Headers("Content-Type: text/plain\r\nX-Time: 10:30\r\n\r\nX-Cut"))
	require.Empty(t, Headers(""))
}
