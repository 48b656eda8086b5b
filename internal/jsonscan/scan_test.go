package jsonscan

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// scanAll reports whether src is one JSON document with only white space around it.
func scanAll(src []byte, maxDepth int) (ok bool, s Scanner) {
	s = Scanner{Text: src, MaxDepth: maxDepth}
	s.Space()
	if !s.Value() {
		return false, s
	}
	s.Space()
	return s.Pos == len(src), s
}

// documents are JSON texts and almost JSON; encoding/json decides which are valid.
var documents = []string{
	``, ` `, `null`, `true`, `false`, `nul`, `nulll`, `True`, `tru`, `t`, "\x00", "\x00null", "null\x00",
	`0`, `-0`, `00`, `01`, `-`, `-01`, `+1`, `1.`, `.1`, `1.0`, `1e5`, `1E+5`, `1e-5`, `1e`, `1e+`, `1.5e`, `1e999999`,
	`-1.2e-3`,
	`123456789012345678901234567890`, `0x10`, `1_000`, `NaN`, `Infinity`, `1 2`, `- 1`, `1.e1`, `0.0`, `0e0`,
	`""`, `"`, `"a`, `"a"b`, `'a'`, `"\"`, `"\\"`, `"\""`, `"\/\b\f\n\r\t"`, `"\a"`, `"\u"`, `"\u12"`, `"\u123g"`,
	`"\u12aF"`, `"\U1234"`,
	`"\ud800"`, `"\udc00\ud800"`, `"\ud83d\ude00"`, `"\u0000"`, "\"\x00\"", "\"\x1f\"", "\"\n\"", "\"\t\"", "\"\x7f\"",
	`"é世😀"`,
	`"12345678"`, `"1234567"`, `"123456789012345`, "\"1234567\x018\"", `"1234567\"`, `"12345678\"9"`, "\"ÿÿÿÿÿÿÿÿ\"",
	`[]`, `[`, `]`, `[ ]`, `[1]`, `[1,]`, `[,1]`, `[1 2]`, `[1,2`, `[[]]`, `[[]`, `[]]`, `[1,,2]`, `[1, 2 ,3 ]`, `[}`,
	`{}`, `{`, `}`, `{ }`, `{"a":1}`, `{"a":1,}`, `{"a"}`, `{"a":}`, `{"a" 1}`, `{a:1}`, `{1:1}`, `{"a":1 "b":2}`,
	`{"a":1,"a":2}`,
	`{"a":{"b":[{"c":null}]}}`, `{"a":1]`, `{"":1}`, `{,}`, `{"a":1,,"b":2}`, `{"a`, `{"a":1`, `{"\x":1}`, `{"a":1;}`,
	"\t\r\n [ 1 ] \t\r\n", "\v1", "\f1", "\u00a01", "\ufeff1", `// c`, `/**/1`, `[1]//`, `1,`, `"a":1`,
}

// Every prefix of a document is a text that ends too early, at every offset within the eight-byte steps.
func TestScannerRejectsEveryPrefix(t *testing.T) {
	t.Parallel()
	const src = `{"first":[1,-2.5e+3,true,false,null,"a\u00e9\n long plain string"],"second":{"":{}}}`
	for i := range len(src) {
		ok, s := scanAll([]byte(src[:i]), 10)
		require.False(t, ok, src[:i])
		require.NotEmpty(t, s.Problem, src[:i])
	}
	ok, _ := scanAll([]byte(src), 10)
	require.True(t, ok)
}

// A byte that ends the plain part must be found at each of the eight offsets of a step.
func TestSkipPlain(t *testing.T) {
	t.Parallel()
	for _, filler := range []string{"a", " ", "!", "#", "[", "]", "\x7f", "\x80", "\xff"} {
		for c := range 256 {
			stops := c < ' ' || c == '"' || c == '\\'
			for at := range 20 {
				src := []byte(strings.Repeat(filler, 20))
				src[at] = byte(c)
				want := len(src)
				if stops {
					want = at
				}
				require.Equal(t, want, skipPlain(src, 0), "%q in %q at %d", c, filler, at)
			}
		}
	}
}

func TestScannerDepth(t *testing.T) {
	t.Parallel()
	for _, brackets := range [][2]string{{"[", "]"}, {`{"a":`, "}"}} {
		nest := func(n int) []byte {
			return []byte(strings.Repeat(brackets[0], n) + "1" + strings.Repeat(brackets[1], n))
		}
		ok, _ := scanAll(nest(256), 256)
		require.True(t, ok)
		ok, s := scanAll(nest(257), 256)
		require.False(t, ok)
		require.Equal(t, "nested deeper than 256 levels", s.Problem)
		require.Equal(t, 256*len(brackets[0]), s.Pos)
	}
}

func TestScannerProblems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		src, problem string
		pos          int
	}{
		{`{"a":1`, "the text ends too early", 6},
		{`"abc`, "the text ends too early", 4},
		{`{"a" 1}`, "expected ':' after a member's name", 5},
		{`{a:1}`, "expected a member's name in double quotes", 1},
		{`{"a":1;}`, "expected ',' or '}' after a member", 6},
		{`[1;2]`, "expected ',' or ']' after an element", 2},
		{`[1,]`, "expected a value", 3},
		{`[nil]`, "expected a value", 1},
		{`[1.x]`, "expected a digit", 3},
		{`"a\x"`, "not an escape sequence", 2},
		{"\"a\nb\"", "a control character must be escaped in a string", 2},
	} {
		ok, s := scanAll([]byte(c.src), 10)
		require.False(t, ok, c.src)
		require.Equal(t, c.problem, s.Problem, c.src)
		require.Equal(t, c.pos, s.Pos, c.src)
	}
}

func TestScannerNamesMembers(t *testing.T) {
	t.Parallel()
	const src = ` { "a" : 1 , "b\u0062":{"a":2}, "" : [ {"a":3} ], "c" : [ ], "d":{ } }`
	s := Scanner{Text: []byte(src), MaxDepth: 10}
	s.Space()
	var got [][2]string
	require.True(t, s.Object(func(name []byte) bool {
		start := s.Pos
		ok := s.Value()
		got = append(got, [2]string{string(name), src[start:s.Pos]})
		return ok
	}))
	require.Equal(t, len(src), s.Pos)
	require.Zero(t, s.Depth)
	require.Equal(t, [][2]string{{"a", "1"}, {`b\u0062`, `{"a":2}`}, {"", `[ {"a":3} ]`}, {"c", `[ ]`}, {"d", `{ }`}}, got)
}

func TestScannerStops(t *testing.T) {
	t.Parallel()
	s := Scanner{Text: []byte(`[1,2,3]`)}
	read := 0
	require.False(t, s.Array(func() bool { read++; return s.Value() && read < 2 }))
	require.Equal(t, 2, read)
	require.Equal(t, 4, s.Pos)
	require.Empty(t, s.Problem)
}

// depthOf is the depth of a valid document.
func depthOf(src []byte) (deepest int) {
	depth, inString := 0, false
	for i := 0; i < len(src); i++ {
		switch c := src[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// FuzzScanner: the scanner and encoding/json agree on UTF-8 within the maximum depth.
func FuzzScanner(f *testing.F) {
	for _, src := range documents {
		f.Add([]byte(src))
	}
	const maxDepth = 8
	f.Fuzz(func(t *testing.T, src []byte) {
		if !utf8.Valid(src) {
			t.Skip()
		}
		ok, _ := scanAll(src, maxDepth)
		want := json.Valid(src) && depthOf(src) <= maxDepth
		require.Equal(t, want, ok, "%q", src)
	})
}

func TestPosition(t *testing.T) {
	t.Parallel()
	text := []byte("{\n  \"ä\": x\n}")
	for _, row := range []struct{ offset, line, column int }{
		{-1, 1, 1}, {0, 1, 1}, {1, 1, 2}, {2, 2, 1}, {10, 2, 8}, {len(text), 3, 2}, {99, 3, 2},
	} {
		line, column := Position(text, row.offset)
		require.Equal(t, [2]int{row.line, row.column}, [2]int{line, column}, "byte %d", row.offset)
	}
}
