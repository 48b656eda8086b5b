package operator

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/postgres"
)

// awkward is a document with white space, escapes, equal names and numbers that a decoder would change.
const awkward = "{\"z\": 1, \"data\" : {\"b\":1e400,\n \"a\":12345678901234567890 , \"h\":\"<&\\u00e9\\ud800>\"," +
	" \"arr\":[1.0, 2 ], \"dup\":1,\"dup\":2}, \"a\": \"\\/x\", \"\\u0075\": {}\n}"

func TestPatchKeepsBytes(t *testing.T) {
	t.Parallel()
	const rest = "\"b\":1e400,\n \"a\":12345678901234567890 , " +
		"\"h\":\"<&\\u00e9\\ud800>\", \"arr\":[1.0, 2 ], \"dup\":1,\"dup\":2"
	const tail = ", \"a\": \"\\/x\", \"\\u0075\": {}\n}"
	for patch, want := range map[string]string{
		`{}`:                   awkward,
		`[]`:                   awkward,
		`{"data":{"<c>":"<"}}`: "{\"z\": 1, \"data\" : {" + rest + ",\"<c>\":\"<\"}" + tail,
		`[{"op":"add","path":"/data/c","value":1e999}]`: "{\"z\": 1, \"data\" : {" + rest + ",\"c\":1e999}" + tail,
		`{"z":null,"none":null}`:                        "{ \"data\" : {" + rest + "}" + tail,
		`[{"op":"remove","path":"/z"}]`:                 "{ \"data\" : {" + rest + "}" + tail,
		`{"u":1}`: "{\"z\": 1, \"data\" : {" + rest +
			"}, \"a\": \"\\/x\", \"\\u0075\": 1\n}",
		`[{"op":"replace","path":"/data/arr/0","value":7},{"op":"add","path":"/data/arr/1","value":8},
			{"op":"add","path":"/data/arr/-","value":9},{"op":"remove","path":"/data/arr/2"}]`: "{\"z\": 1, \"data\" : {" +
			"\"b\":1e400,\n \"a\":12345678901234567890 , \"h\":\"<&\\u00e9\\ud800>\", \"arr\":[7,8,9]," +
			" \"dup\":1,\"dup\":2}" + tail,
	} {
		p, err := ParsePatch([]byte(patch))
		require.NoError(t, err)
		changed, err := p.Apply([]byte(awkward))
		require.NoError(t, err, patch)
		require.Equal(t, want, string(changed), patch)
		require.True(t, json.Valid(changed))
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
	} {
		p, err := ParsePatch([]byte(row[1]))
		require.NoError(t, err)
		changed, err := p.Apply([]byte(row[0]))
		require.NoError(t, err)
		require.Equal(t, row[2], string(changed), "%s with %s", row[0], row[1])
	}
}

// Source: RFC 6902, appendix A; without move and copy.
func TestJSONPatches(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ document, patch, want, problem string }{
		{`{"foo":"bar"}`, `[{"op":"add","path":"/baz","value":"qux"}]`, `{"foo":"bar","baz":"qux"}`, ""},
		{`{"foo":["bar","baz"]}`, `[{"op":"add","path":"/foo/1","value":"qux"}]`, `{"foo":["bar","qux","baz"]}`, ""},
		{`{"foo":["bar","qux","baz"]}`, `[{"op":"remove","path":"/foo/1"}]`, `{"foo":["bar","baz"]}`, ""},
		{`{"baz":"qux"}`, `[{"op":"replace","path":"/baz","value":"boo"}]`, `{"baz":"boo"}`, ""},
		{`{"a":["b",2,"c"]}`, `[{"op":"test","path":"/a/1","value":2.0}]`, `{"a":["b",2,"c"]}`, ""},
		{`{"baz":"qux"}`, `[{"op":"test","path":"/baz","value":"bar"}]`, "", "test: /baz has another value than the test"},
		{`{"foo":"bar"}`, `[{"op":"add","path":"/child","value":{"g":{}},"xyz":1}]`, `{"foo":"bar","child":{"g":{}}}`, ""},
		{`{"foo":"bar"}`, `[{"op":"add","path":"/baz/bat","value":1}]`, "", "path: /baz/bat does not exist"},
		{`{"/":9,"~1":10}`, `[{"op":"test","path":"/~01","value":10}]`, `{"/":9,"~1":10}`, ""},
		{`{"/":9,"~1":10}`, `[{"op":"test","path":"/~01","value":"10"}]`, "", "test: /~01 has another value than the test"},
		{`{"foo":["bar"]}`, `[{"op":"add","path":"/foo/-","value":["x"]}]`, `{"foo":["bar",["x"]]}`, ""},
		{`{}`, `[{"op":"test","path":"/a","value":null}]`, "", "path: /a does not exist"},
		{`{"a":[1]}`, `[{"op":"replace","path":"/a/1","value":0}]`, "", "path: /a/1 does not exist"},
		{`{"a":[1]}`, `[{"op":"add","path":"/a/2","value":0}]`, "", "path: /a/2 does not exist"},
		{`{"a":[1]}`, `[{"op":"remove","path":"/a/-1"}]`, "", "path: /a/-1 does not exist"},
		{`{"a":[1]}`, `[{"op":"remove","path":"/a/00"}]`, "", "path: /a/00 does not exist"},
		{`{"a":[]}`, `[{"op":"remove","path":"/a/-"}]`, "", "path: /a/- does not exist"},
		{`{"a":1}`, `[{"op":"replace","path":"/a","value":{}},{"op":"add","path":"/a/b","value":1}]`, `{"a":{"b":1}}`, ""},
		{
			`{"a":{"x":[1,{"y":2}],"z":1e2}}`, `[{"op":"test","path":"/a","value":{"z":100,"x":[1.0,{"y":0.2e1}]}}]`,
			`{"a":{"x":[1,{"y":2}],"z":1e2}}`, "",
		},
	} {
		p, err := ParsePatch([]byte(row.patch))
		require.NoError(t, err)
		changed, err := p.Apply([]byte(row.document))
		var failed *PatchError
		if row.problem != "" {
			require.ErrorAs(t, err, &failed, row.patch)
			require.Equal(t, row.problem, failed.Cause+": "+failed.Error())
			continue
		}
		require.NoError(t, err)
		require.Equal(t, row.want, string(changed), "%s with %s", row.document, row.patch)
	}
}

func TestInvalidPatches(t *testing.T) {
	t.Parallel()
	for patch, message := range map[string]string{
		``:         "patch must be JSON",
		`{`:        "patch must be JSON",
		"\"\xff\"": "patch must be JSON",
		`7`: "patch must be a JSON merge patch, which is an object, or a JSON Patch, " +
			"which is an array",
		`[7]`:                         "patch must have objects with the strings op and path",
		`[{"op":"move","path":"/a"}]`: `patch[0].op must be test, add, replace or remove, not "move"`,
		`[{"op":"remove","path":"/a"},{"op":"add","path":"/a"}]`: "patch[1].value is required",
		`[{"op":"remove"}]`:              "patch[0].path must not be empty: it would be the whole event",
		`[{"op":"remove","path":"a"}]`:   "patch[0].path must begin with /, such as /data/total",
		`[{"op":"remove","path":"/~2"}]`: "patch[0].path has a ~ without 0 or 1 after it",
	} {
		_, err := ParsePatch([]byte(patch))
		require.ErrorIs(t, err, postgres.ErrInvalid)
		require.EqualError(t, err, message)
	}
}

func TestPatchPaths(t *testing.T) {
	t.Parallel()
	for patch, want := range map[string][]string{
		`{"a":{"b/c":1,"d":null},"e":{}}`: {"/a/b~1c", "/a/d", "/e"},
		`{}`:                              nil,
		`[{"op":"test","path":"/a","value":1},{"op":"remove","path":"/b"}]`: {"/b"},
	} {
		p, err := ParsePatch([]byte(patch))
		require.NoError(t, err)
		require.Equal(t, want, p.Paths(), patch)
	}
}

func TestNormalNumber(t *testing.T) {
	t.Parallel()
	for a, b := range map[string]string{
		"0": "-0.0e7", "1": "1.0", "100": "1E+2", "0.01": "1e-2", "-12.50": "-1.25e1", "1e999999999": "10e999999998",
		"12345678901234567890": "1234567890123456789e1",
	} {
		require.Equal(t, normalNumber(a), normalNumber(b), "%s and %s", a, b)
	}
	require.NotEqual(t, normalNumber("1"), normalNumber("-1"))
	require.NotEqual(t, normalNumber("1"), normalNumber("10"))
	require.NotEqual(t, normalNumber("12345678901234567890"), normalNumber("12345678901234567891"))
}
