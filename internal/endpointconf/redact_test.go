package endpointconf_test

import (
	"encoding/json"
	"html"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/endpointconf"
)

func TestRedact(t *testing.T) {
	t.Parallel()
	const hidden = `se/cr"et<&>é and more`
	inJSON, err := json.Marshal(map[string]string{"x-a": hidden})
	require.NoError(t, err)
	s := endpointconf.NewSecrets([]attribute{
		secret("X-A", hidden), secret("X-S", "ab"), secret("Authorization", "Bearer 0123456789abcdef"),
		static("X-B", "no secret at all"), dynamic("X-C", "id"),
	}, "https://example.com/hook?code=query%2Fsecret%3D&v=1&api=2021-01&justatoken")
	for name, row := range map[string]struct{ text, want string }{
		"nothing":                    {"", ""},
		"no secret":                  {"no secret at all, v=1, 2021-01", "no secret at all, v=1, 2021-01"},
		"as it is":                   {"x " + hidden + " y " + hidden, "x *** y ***"},
		"as JSON":                    {string(inJSON), `{"x-a":"***"}`},
		"as JSON with slashes":       {`{"x-a":"se\/cr\"et<&>é and more"}`, `{"x-a":"***"}`},
		"as JSON of ASCII":           {`{"x-a":"se/cr\"et<&>\u00e9 and more"}`, `{"x-a":"***"}`},
		"as a form":                  {"a=" + url.QueryEscape(hidden), "a=***"},
		"as a path":                  {"/" + url.PathEscape(hidden) + "/", "/***/"},
		"as HTML":                    {"<b>" + html.EscapeString(hidden) + "</b>", "<b>***</b>"},
		"in a header":                {"X-Echo: " + hidden + "\r\n", "X-Echo: ***\r\n"},
		"a short one":                {"[ab]", "[***]"},
		"the scheme and the token":   {"got Bearer 0123456789abcdef.", "got ***."},
		"the token":                  {"bad token 0123456789abcdef.", "bad token ***."},
		"the query":                  {"POST /hook?code=query%2Fsecret%3D&v=1", "POST /hook?code=***&v=1"},
		"the query, decoded":         {"code is query/secret=", "code is ***"},
		"a query that is a value":    {"?justatoken", "?***"},
		"cut at the end":             {"x " + hidden[:9], "x ***"},
		"cut after one byte too few": {"x " + hidden[:3], "x " + hidden[:3]},
		"bytes that are no text":     {"\xff" + hidden + "\xfe", "\xff***\xfe"},
	} {
		require.Equal(t, row.want, s.Redact(row.text), name)
	}
	s = endpointconf.NewSecrets([]attribute{secret("X-A", "secret"), secret("X-B", "secret-and-more")}, "")
	require.Equal(t, "*** ***", s.Redact("secret-and-more secret"), "the longer secret first")
	s = endpointconf.NewSecrets([]attribute{
		secret("X-A", "cdef-of-the-longer-one"), secret("X-B", "0123456789abcdefgh"),
	}, "")
	require.Equal(t, "x ***", s.Redact("x 0123456789abcdef"), "the secret of which the cut text has more")
}

func TestNoSecrets(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{
		"https://example.com/hook", "https://example.com/hook?v=1234567", "https://example.com/hook?", "",
	} {
		s := endpointconf.NewSecrets([]attribute{static("X-A", "a long value"), dynamic("X-B", "id")}, endpoint)
		require.Nil(t, s, endpoint)
		require.Equal(t, "a long value", s.Redact("a long value"))
	}
	require.NotNil(t, endpointconf.NewSecrets(nil, "https://example.com/hook?v=12345678"))
}

// Of a cut secret only the first bytes remain.
func TestRedactLeavesNoLongPartOfASecret(t *testing.T) {
	t.Parallel()
	const hidden = "0123456789abcdef"
	s := endpointconf.NewSecrets([]attribute{secret("X-A", hidden)}, "")
	whole := "a " + hidden + hidden + " b " + hidden
	for n := range len(whole) + 1 {
		require.NotContains(t, strings.ReplaceAll(s.Redact(whole[:n]), "***", ""), hidden[:4], whole[:n])
	}
}
