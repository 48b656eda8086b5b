package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const patientFile = "../deploy/examples/policies/patient.json"

// policyVerbs runs one, and requires its exit code.
func policyVerbs(t *testing.T, n *nodeProcess) func(code int, args ...string) result {
	return func(code int, args ...string) result {
		t.Helper()
		r := postrider(t, n.cliEnv(), append([]string{"policy"}, args...)...)
		require.Equal(t, code, r.code, r.stderr+r.stdout)
		return r
	}
}

func TestPolicyPutExplainAndDelete(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNode(t, db, "--role", "api")
	run := policyVerbs(t, n)
	require.Equal(t, "Retry policy patient was created.\n", run(0, "put", "patient", "-f", patientFile).stdout)
	require.Equal(t, "Retry policy patient was replaced.\n", run(0, "put", "patient", "-f", patientFile).stdout)

	var x explained
	require.NoError(t, json.Unmarshal([]byte(run(0, "explain", "patient", "--status", "404", "-o", "json").stdout), &x))
	require.Len(t, x.Attempts, 109)
	require.Equal(t, 3600.0, x.Attempts[14].AtSeconds, "densely in the first hour")
	require.Equal(t, 7200.0, x.Attempts[15].AtSeconds, "then hourly")
	require.Equal(t, 342000.0, x.Attempts[108].AtSeconds)
	require.Equal(t, []any{345600.0, "dead_lettered", tooOld},
		[]any{x.End.AtSeconds, x.End.State, *x.End.Reason}, "4 days")

	shown := run(0, "show", "patient", "-o", "json").stdout
	file := filepath.Join(t.TempDir(), "copy.json")
	require.NoError(t, os.WriteFile(file, []byte(shown), 0o600))
	run(0, "put", "copied", "-f", file)
	require.Equal(t, shownWithout(t, shown), shownWithout(t, run(0, "show", "copied", "-o", "json").stdout),
		"what is shown can be put")
	require.Contains(t, run(0, "show", "patient").stdout, "attempts        no limit (may be set to 1-1000)")

	list := run(0, "list").stdout
	require.Regexp(t, `(?s)\nnamespace-2023 .*\ncopied .*\npatient +no limit +96h `, list)
	require.Contains(t, run(1, "explain", "none").stderr, `retry policy "none" does not exist`)

	require.Equal(t, "Retry policy copied was deleted.\n", run(0, "delete", "copied", "--yes").stdout)
	require.Contains(t, run(1, "delete", "copied", "--yes").stderr, `retry policy "copied" does not exist`)
	require.Equal(t,
		[]string{"policy_created patient", "policy_replaced patient", "policy_created copied", "policy_deleted copied"},
		one[[]string](db, "SELECT array_agg(action || ' ' || (details ->> 'policy') ORDER BY audit_id) "+
			"FROM postrider.audit WHERE actor = 'admin' AND address = '127.0.0.1'"))
	require.Contains(t, run(1, "delete", "ga-2021").stderr, "built in and never changes: copy it under another name")
	require.Contains(t, run(1, "put", "ga-2021", "-f", file).stderr,
		"built in and never changes: copy it under another name")
}

// A policy is changed or deleted only in the version that was read, with --if-match.
func TestPolicyIfMatch(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNode(t, db, "--role", "api")
	run := policyVerbs(t, n)
	etag := func() string {
		var shown struct{ Etag string }
		require.NoError(t, json.Unmarshal([]byte(run(0, "show", "mine", "-o", "json").stdout), &shown))
		return shown.Etag
	}
	require.Contains(t, run(1, "put", "mine", "-f", patientFile, "--if-match", "*").stderr,
		"is in none of the versions that If-Match names")
	run(0, "put", "mine", "-f", patientFile)
	first := etag()
	run(0, "put", "mine", "-f", patientFile, "--if-match", first)
	second := etag()
	require.NotEqual(t, first, second)
	for _, stale := range []string{first, strings.Trim(first, `"`)} {
		require.Contains(t, run(1, "put", "mine", "-f", patientFile, "--if-match", stale).stderr,
			"is in none of the versions that If-Match names")
		require.Contains(t, run(1, "delete", "mine", "--yes", "--if-match", stale).stderr,
			"is in none of the versions that If-Match names")
	}
	require.Equal(t, second, etag())
	require.Contains(t, run(1, "delete", "mine", "--yes", "--if-match", "x").stderr,
		"If-Match must be * or a list of entity tags")
	run(0, "delete", "mine", "--yes", "--if-match", strings.Trim(second, `"`))
}

func shownWithout(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &v))
	require.Equal(t, false, v["builtIn"])
	delete(v, "name")
	require.Regexp(t, `^"[0-9]+"$`, v["etag"])
	delete(v, "etag")
	return v
}

// What show prints of a built-in policy, without a database, is what the file of a copy may hold.
func TestPolicyPutTakesWhatShowPrints(t *testing.T) {
	t.Parallel()
	n := startNode(t, migratedDatabase(t), "--role", "api")
	for _, name := range []string{"preview-2017", "ga-2018", "ga-2019", "ga-2021", "namespace-2023"} {
		original := postrider(t, nil, "policy", "show", name, "-o", "json")
		file := filepath.Join(t.TempDir(), name+".json")
		require.NoError(t, os.WriteFile(file, []byte(original.stdout), 0o600))
		put := postrider(t, n.cliEnv(), "policy", "put", "own-"+name, "-f", file)
		require.Zero(t, put.code, put.stderr)
		asJSON := postrider(t, n.cliEnv(), "policy", "put", "own-"+name, "-f", file, "-o", "json")
		require.Equal(t, postrider(t, n.cliEnv(), "policy", "show", "own-"+name, "-o", "json").stdout, asJSON.stdout)
		var want, got map[string]any
		require.NoError(t, json.Unmarshal([]byte(original.stdout), &want))
		require.NoError(t,
			json.Unmarshal([]byte(postrider(t, n.cliEnv(), "policy", "show", "own-"+name, "-o", "json").stdout), &got))
		want["name"], want["builtIn"], want["isDefault"] = "own-"+name, false, false
		delete(got, "etag") // of what the database has
		require.Equal(t, want, got)
	}
}

func TestPolicyPutRejects(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNode(t, db, "--role", "api")
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "policy.json")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	for _, row := range []struct {
		name string
		env  []string
		args []string
		says string
	}{
		{"no file", n.cliEnv(), []string{"put", "mine"}, "--file"},
		{"a file that is not there", n.cliEnv(), []string{"put", "mine", "-f", "nowhere.json"}, "nowhere.json"},
		{"an empty file", n.cliEnv(), []string{"put", "mine", "-f", file("")}, "the body must be a JSON object"},
		{"no JSON", n.cliEnv(), []string{"put", "mine", "-f", file("steps: 1")}, "must be one JSON document"},
		{"an unknown property", n.cliEnv(), []string{"put", "mine", "-f", file(`{"steps":[1]}`)}, "steps is not a member"},
		{"two mistakes", n.cliEnv(), []string{"put", "mine", "-f", file(`{"basis":"x","tailInSeconds":0}`)}, "basis must " +
			"be gap or offset\ntailInSeconds must be between 1 and 604800, not 0"},
		{"a short name", n.cliEnv(), []string{"put", "m", "-f", patientFile}, "name must be 3 to 64 characters"},
	} {
		r := postrider(t, row.env, append([]string{"policy"}, row.args...)...)
		require.Equal(t, 2, r.code, "%s: %s", row.name, r.stderr)
		require.Contains(t, r.stderr, row.says, row.name)
	}
	require.Equal(t, 5, one[int](db, "SELECT count(*)::int FROM postrider.retry_policies"))
}
