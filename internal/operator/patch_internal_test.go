package operator

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
)

func patched(t *testing.T, patch, document string) string {
	t.Helper()
	p, err := parsePatch([]byte(patch))
	require.NoError(t, err)
	changed := p.Apply([]byte(document))
	require.True(t, json.Valid(changed), "%s", changed)
	return string(changed)
}

// What a patch does not name keeps its bytes: white space, escapes, order, and numbers that a decoder would change.
func TestPatchKeepsTheBytesOfOtherMembers(t *testing.T) {
	t.Parallel()
	const data = "" +
		"\"b\":1e400,\n \"a\":12345678901234567890 , \"h\":\"<&\\u00e9\\ud800>\", \"arr\":[1.0, 2 ], \"c\":1,\"c\":2"
	const tail = ", \"a\": \"\\/x\", \"\\u0075\": { }\n} "
	const document = " {\"z\": 1, \"data\" : {" + data + "}" + tail
	for patch, want := range map[string]string{
		`{}`:                     document,
		`{"data":{},"u":{}}`:     document,
		`{"data":{"<d>":1e999}}`: " {\"z\": 1, \"data\" : {" + data + ",\"<d>\":1e999}" + tail,
		`{"z":null,"none":null}`: " { \"data\" : {" + data + "}" + tail,
		`{"u":1}`:                " {\"z\": 1, \"data\" : {" + data + "}, \"a\": \"\\/x\", \"\\u0075\": 1\n} ",
		`{"data":{"arr":null,"b":null,"a":null,"h":null,"c":3}}`: " {\"z\": 1, \"data\" : { \"c\":3,\"c\":3}" + tail,
	} {
		require.Equal(t, want, patched(t, patch, document), patch)
	}
}

// Source: RFC 7396, appendix A; only patches that are objects.
func TestMergePatches(t *testing.T) {
	t.Parallel()
	for _, row := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{}`, `{"a":1,"a":{"b":2}}`, `{"a":{"b":2}}`},
	} {
		require.Equal(t, row[2], patched(t, row[1], row[0]), "%s with %s", row[0], row[1])
	}
}

func TestInvalidPatches(t *testing.T) {
	t.Parallel()
	for _, patch := range []string{``, `{`, "\"\xff\"", `7`, `[]`, `{"a":1} {}`} {
		_, err := parsePatch([]byte(patch))
		require.ErrorIs(t, err, postgres.ErrInvalid)
		require.EqualError(t, err, "mergePatch must be a JSON object (RFC 7396)")
	}
}

func TestPatchPaths(t *testing.T) {
	t.Parallel()
	p, err := parsePatch([]byte(`{"a":{"b/c":1,"d~":null},"e":{}}`))
	require.NoError(t, err)
	require.Equal(t, []string{"/a/b~1c", "/a/d~0", "/e"}, p.paths())
}

// A wide and deep patch takes time in proportion to its size: half a million members in two steps for each
// member would be 10^11 steps, which exceeds the test's time.
func TestPatchesAreLinear(t *testing.T) {
	t.Parallel()
	const wide, deep = 500_000, 255
	object := func(value int) string {
		members := make([]string, wide)
		for i := range members {
			members[i] = fmt.Sprintf(`"member-%d":%d`, i, value)
		}
		return "{" + strings.Join(members, ",") + "}"
	}
	nested := func(value string) string { return strings.Repeat(`{"a":`, deep) + value + strings.Repeat("}", deep) }
	before, after := nested(object(1)), nested(object(2))
	require.Equal(t, after, patched(t, after, before))
}

// The paths of a patch would otherwise be as many as its members, each as long as the names above it.
func TestPatchHasUpTo100Paths(t *testing.T) {
	t.Parallel()
	members := make([]string, 150)
	for i := range members {
		members[i] = fmt.Sprintf(`"n%d":{"a":%d}`, i, i)
	}
	p, err := parsePatch([]byte(`{"data":{` + strings.Join(members, ",") + `}}`))
	require.NoError(t, err)
	paths := p.paths()
	require.Len(t, paths, 100)
	require.Equal(t, []string{"/data/n0/a", "/data/n99/a"}, []string{paths[0], paths[99]})
}

func TestPatchIsNestedLikeAnEvent(t *testing.T) {
	t.Parallel()
	for _, brackets := range [][2]string{{`{"a":`, "}"}, {`{"a":[`, "]}"}} {
		levels := strings.Count(brackets[0], "{") + strings.Count(brackets[0], "[")
		nested := func(depth int) []byte {
			n := depth / levels
			return []byte(strings.Repeat(brackets[0], n) + "1" + strings.Repeat(brackets[1], n))
		}
		_, err := parsePatch(nested(256))
		require.NoError(t, err)
		for _, depth := range []int{256 + levels, 5000} {
			_, err = parsePatch(nested(depth))
			require.ErrorIs(t, err, postgres.ErrInvalid)
			require.EqualError(t, err, "mergePatch is nested deeper than 256 levels, the most for an event")
		}
	}
}
