package filter

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"

	"postrider/internal/jsonscan"

	"github.com/stretchr/testify/require"
)

// lookUp returns one key's value as JSON text; nil if it is missing. Names are compared exactly.
func lookUp(src []byte, path ...string) []byte {
	var keys keyTree
	keys.root.add(path)
	var root node
	values := make([]value, len(keys.number(&root)))
	w := walker{Scanner: jsonscan.Scanner{Text: src}, values: values}
	if w.Space() == '{' {
		w.object(&root)
	}
	switch v := &values[0]; v.kind {
	case valueMissing:
		return nil
	case valueString:
		return append(append([]byte{'"'}, v.text...), '"')
	default:
		return v.text
	}
}

func TestLookUp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, src, path, want string }{
		{"a member", `{"a":1}`, "a", `1`},
		{"a member further down", `{"x":[{"a":2}],"a":{"b":{"c":"d"}}}`, "a.b.c", `"d"`},
		{"white space", " {\n\t\"a\" :\r\n { \"b\" : [ 1 , 2 ] } } ", "a.b", `[ 1 , 2 ]`},
		{"an empty object", `{}`, "a", ``},
		{"an empty object inside", `{"a":{},"b":1}`, "b", `1`},
		{"a name that begins like the key", `{"ab":1,"a":2,"aa":3}`, "a", `2`},
		{"names are exact in case", `{"A":1}`, "a", ``},
		{"null is a value", `{"a":null}`, "a", `null`},
		{"nothing below a number", `{"a":1}`, "a.b", ``},
		{"nothing below an array", `{"a":[{"b":1}]}`, "a.b", ``},
		{"an element is not named by its number", `{"a":[7]}`, "a.0", ``},
		{"a name with a dot is not a path", `{"a.b":1}`, "a.b", ``},
		{"brackets in strings", `{"x":["}]\"{",{"y":"]"}],"a":true}`, "a", `true`},
		{"backslashes at the end of strings", `{"x":"\\","y":["\\\\"],"a":"\\\""}`, "a", `"\\\""`},
		{"an escaped name", `{"\u0061\/":{"\n":1}}`, "a/.\n", `1`},
		{"a long string before it", `{"x":"` + strings.Repeat(`y\"`, 99) + `","a":false}`, "a", `false`},
		{"the last of equal names", `{"a":1,"a":2}`, "a", `2`},
		{"the last of equal names is null", `{"a":1,"a":null}`, "a", `null`},
		{"the last of equal names counts with all it has", `{"a":{"b":1},"a":{}}`, "a.b", ``},
		{"the last of equal names is no object", `{"a":{"b":1},"a":5}`, "a.b", ``},
		{"equal names, one escaped", `{"a":1,"\u0061":2}`, "a", `2`},
		{"not an object", `[{"a":1}]`, "a", ``},
		{"no text", ``, "a", ``},
		{"text that ends too early", `{"a":{"b":[1`, "a.b", `[1`},
	} {
		require.Equal(t, tt.want, string(lookUp([]byte(tt.src), strings.Split(tt.path, ".")...)), tt.name)
	}
	const levels = 256
	path := strings.Split(strings.Repeat("a.", levels-1)+"a", ".")
	src := strings.Repeat(`{"a":`, levels) + "7" + strings.Repeat("}", levels)
	require.Equal(t, "7", string(lookUp([]byte(src), path...)))
}

// FuzzLookUp compares the lookup with encoding/json for valid JSON; for other text it must end.
func FuzzLookUp(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1,"b":"x"},"a":{"b":[1,{"c":null}]}}`), "a", "b")
	f.Add([]byte(` { "a" : { "\u0062" : 1e400 } } `), "a", "b")
	f.Add([]byte(`{"x":"\\\"}","a":{"b":"\ud800"}}`), "a", "b")
	f.Add([]byte(`{"a":{"b":`), "a", "b")
	f.Add([]byte(`{"a":}`), "a", "b")
	f.Add([]byte(`{"":{"":-0}}`), "", "")
	f.Fuzz(func(t *testing.T, src []byte, first, second string) {
		found := lookUp(src, first, second)
		if !json.Valid(src) || !utf8.Valid(src) {
			return
		}
		require.Equal(t, decodedLookUp(src, first, second), compacted(found))
	})
}

// decodedLookUp is the result of encoding/json, whose maps keep the last of equal names.
func decodedLookUp(src []byte, first, second string) string {
	var top map[string]json.RawMessage
	var below map[string]json.RawMessage
	if json.Unmarshal(src, &top) != nil || json.Unmarshal(top[first], &below) != nil {
		return ""
	}
	return compacted(below[second])
}

func compacted(raw []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return ""
	}
	return b.String()
}

// FuzzElements compares the elements of arrays with encoding/json.
func FuzzElements(f *testing.F) {
	f.Add([]byte(`[1, "a\"]", [2], {"b":[3]} , null ]`))
	f.Add([]byte(`[]`))
	f.Add([]byte(`[1,`))
	f.Fuzz(func(t *testing.T, src []byte) {
		if len(src) == 0 || src[0] != '[' {
			return
		}
		var found []string
		elements(src, func(raw []byte) bool { found = append(found, compacted(raw)); return true })
		if !json.Valid(src) {
			return
		}
		var want []json.RawMessage
		require.NoError(t, json.Unmarshal(src, &want))
		require.Len(t, found, len(want))
		for i := range want {
			require.Equal(t, compacted(want[i]), found[i])
		}
	})
}

// FuzzFold compares folding with strings.EqualFold.
func FuzzFold(f *testing.F) {
	f.Add("Kelvin", "\u212aELVIN")
	f.Add("Straße ς", "STRASSE Σ")
	f.Add("\U00010400", "\U00010428")
	f.Fuzz(func(t *testing.T, a, b string) {
		equal := bytes.Equal(appendFold(nil, a), appendFold([]byte("x"), []byte(b))[1:])
		require.Equal(t, strings.EqualFold(a, b), equal)
	})
}

// FuzzNumbers checks the comparison by rational numbers, which are exact.
func FuzzNumbers(f *testing.F) {
	for _, pair := range [][2]string{
		{"0.1", "1e-1"},
		{"-0", "0"},
		{"0e9", "-0.00"},
		{"1E+2", "100"},
		{"-5", "-50e-1"},
		{"999999999999999999", "1e18"},
		{"123456789012345678901234567890", "123456789012345678901234567891"},
		{"1e400", "1e399"},
		{"0.30000000000000004", "0.3"},
		{"9007199254740993", "9007199254740992"},
		{"-1e-400", "0"},
		{"12.5", "125"},
		{"1.0", "1"},
		{"10.01", "1.001e1"},
		{"0.05", "0.5"},
	} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, left, right string) {
		a, b := rational(left), rational(right)
		if a == nil || b == nil {
			return
		}
		n := readNumber([]byte(right))
		v := value{kind: valueNumber, text: []byte(left)}
		require.Equal(t, a.Cmp(b), v.compare(&n), "%s and %s", left, right)
		require.Equal(t, a.Cmp(b), v.compare(&n), "compared again")
	})
}

// rational is nil if the text is not a number, or too large.
func rational(text string) *big.Rat {
	if at := strings.IndexAny(text, "eE"); !isNumber([]byte(text)) || at >= 0 && len(text)-at > 5 {
		return nil
	}
	r, _ := new(big.Rat).SetString(text)
	return r
}

func TestNumbersOfAnySize(t *testing.T) {
	t.Parallel()
	n := readNumber([]byte("1e1000"))
	for text, want := range map[string]int{
		"1e999999999999999999999999": 1, "-1e999999999999999999999999": -1, "1e-999999999999999999999999": -1, "10E+999": 0,
		"0e999999999999999":             -1,
		"1" + strings.Repeat("0", 1000): 0, "1" + strings.Repeat("0", 999) + ".9": -1,
		"1" + strings.Repeat("0", 1000) + ".01": 1,
	} {
		v := value{kind: valueNumber, text: []byte(text)}
		require.Equal(t, want, v.compare(&n), text)
	}
}
