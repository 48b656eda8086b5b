package cli_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/cli/rest"
)

// golden returns an expected output, and `…` for what differs from run to run.
func golden(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	require.NoError(t, err)
	return string(text)
}

// The schedules are tested in package policy; here, each flag has its effect.
func TestPolicyExplain(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"ga-2021 --max-attempts 3 --ttl 24h":                                   "0 10 40 dead_lettered",
		"ga-2021 --dead-letter none --ttl 1m":                                  "0 10 40 dropped",
		"ga-2021 --status 200":                                                 "0 delivered",
		"ga-2021 --status 503 --max-attempts 4":                                "0 30 60 120 dead_lettered",
		"ga-2021 --endpoint-kind webhook --status 404":                         "0 dead_lettered",
		"ga-2021 --endpoint-kind azure-resource --status 404 --max-attempts 3": "0 300 600 dead_lettered",
		"namespace-2023 --error timeout --behavior documented":                 "0 dropped",
		"namespace-2023 --error timeout --max-attempts 3":                      "0 10 30 dead_lettered",
		"namespace-2023 --error full --behavior documented --max-attempts 3":   "0 10 30 dropped",
		"ga-2021 --status 503 --retry-after 24h --max-attempts 3":              "0 3600 7200 dead_lettered",
	} {
		r := postrider(t, strings.Fields("policy explain -o json "+args)...)
		require.Zero(t, r.code, r.stderr)
		require.Empty(t, r.stderr)
		var x rest.Object
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &x))
		schedule := ""
		for _, attempt := range rest.Objects(x, "attempts") {
			schedule += fmt.Sprint(attempt["atSeconds"], " ")
		}
		require.Equal(t, want, schedule+rest.TextAt(x, "end.state"), args)
	}
}

func TestPolicyTables(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"policy-explain":             "policy explain ga-2018 --status 400 --dead-letter none --ttl 2m",
		"policy-explain-rate":        "policy explain ga-2021 --ttl 6m --rate-period 60 --rate-limit 300 --backlog 1500",
		"policy-show-preview-2017":   "policy show preview-2017",
		"policy-show-ga-2021":        "policy show ga-2021",
		"policy-show-namespace-2023": "policy show namespace-2023",
	} {
		r := postrider(t, strings.Fields(line)...)
		require.Zero(t, r.code, r.stderr)
		shown, table, cut := strings.Cut(r.stdout, "\nENDPOINT ")
		require.Equal(t, golden(t, name), shown)
		require.Equal(t, strings.Contains(line, "show"), cut && strings.Contains(table, "\nazure-resource  other "))
	}
	r := postrider(t, strings.Fields("policy explain ga-2021 --ttl 6m --rate-limit 1 --rate-period 60 --backlog 1500")...)
	require.Equal(t, "ATTEMPT  AT SECOND      REASON\nend      360        6m  dead_lettered TimeToLiveExceeded: "+
		"its time to live ended while it waited for the rate limit of 1 request/min\n", r.stdout)
}

// Package policy has the limits; here, each flag names its mistake.
func TestPolicyExplainRejects(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"":                                 "<name>",
		"ga-2021 --max-attempts 31":        "between 1 and 30",
		"ga-2021 --ttl 25h":                "between 1 and 1440 minutes",
		"ga-2021 --ttl 90s":                "whole minutes",
		"ga-2021 --status 99":              "between 200 and 599",
		"ga-2021 --error gremlins":         `"unauthorized","argument","full","disabled","session"`,
		"ga-2021 --backlog 5":              "must be set together",
		"ga-2021 --rate-period 60":         "--rate-period only with them",
		"ga-2021 --endpoint-kind pigeon":   `"webhook","azure-resource"`,
		"ga-2021 --dead-letter blob":       `"rows","none"`,
		"ga-2021 --retry-after=-5m":        "must be 0 or more, not -5m0s",
		"ga-2021 --status 500 --error dns": "with an error",

		"ga-2021 --rate-limit 5 --backlog=-1":                     "must be 0 or more, not -1",
		"ga-2021 --rate-limit 0 --backlog 5":                      "--rate-limit: must be between 1 and 100000, not 0",
		"ga-2021 --rate-limit 5 --rate-period 100000 --backlog 5": "between 1 and 86400",
	} {
		r := postrider(t, append([]string{"policy", "explain"}, strings.Fields(args)...)...)
		require.Equal(t, 2, r.code, args+r.stderr)
		require.Contains(t, r.stderr, says, args)
	}
	if conn, err := net.Dial("tcp", "127.0.0.1:7480"); err == nil { // of a postrider dev, which has other policies
		require.NoError(t, conn.Close())
		return
	}
	r := postrider(t, "policy", "show", "ga-2020")
	require.Equal(t, 2, r.code, r.stderr)
	require.Contains(t, r.stderr, "they are preview-2017, ga-2018, ga-2019, ga-2021, namespace-2023, ga-2026")
	require.Contains(t, postrider(t, "policy", "list").stderr, "no server; the list has only the built-in policies")
}

const patientFile = "../../deploy/examples/policies/patient.json"

func TestOwnPolicies(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	require.Equal(t, "Retry policy patient was created.\n", h.line(0, "policy put patient -f "+patientFile))
	require.Equal(t, "Retry policy patient was replaced.\n", h.line(0, "policy put patient -f "+patientFile))
	attempts := rest.Objects(h.object("policy", "explain", "patient", "--status", "404"), "attempts")
	require.Len(t, attempts, 109)
	require.Equal(t, []any{3600.0, 7200.0}, []any{attempts[14]["atSeconds"], attempts[15]["atSeconds"]},
		"densely in the first hour, then hourly")
	require.Contains(t, h.line(0, "policy show patient"),
		"Default attempts   no limit\nFewest attempts    1\nMost attempts      1000\n")

	etag := func() string { return h.object("policy", "show", "patient")["etag"].(string) }
	first := etag()
	h.run(0, "policy", "put", "patient", "-f", patientFile, "--if-match", first)
	for _, stale := range []string{first, strings.Trim(first, `"`)} {
		for _, verb := range []string{"put patient -f " + patientFile, "delete patient --yes"} {
			require.Contains(t, h.line(1, "policy "+verb+" --if-match "+stale), "is in none of the versions that If-Match names")
		}
	}
	require.Contains(t, h.line(2, "policy delete patient --yes --if-match x"),
		"If-Match must be * or a list of entity tags")
	require.Equal(t, "Retry policy patient was deleted.\n", h.line(0, "policy delete patient --yes --if-match "+etag()))
	require.Contains(t, h.line(1, "policy put ga-2021 -f "+patientFile),
		"built in and never changes: copy it under another name")
}

// The file of a policy can be what show prints, also of a built-in policy.
func TestPolicyPutTakesWhatShowPrints(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, name := range []string{"preview-2017", "ga-2018", "ga-2019", "ga-2021", "namespace-2023", "ga-2026"} {
		require.Contains(t, h.line(0, "policy list"), "\n"+name+" ")
		original := postrider(t, "policy", "show", name, "-o", "json").stdout
		put := h.line(0, "policy put own-"+name+" -o json -f "+writtenFile(t, original))
		require.Equal(t, put, h.line(0, "policy show own-"+name+" -o json"))
		require.Equal(t, withoutName(t, original), withoutName(t, put))
	}
	file := func(text string) string { return "mine -f " + writtenFile(t, text) }
	for args, says := range map[string]string{
		"m -f " + patientFile:       "name must be 3 to 64 characters",
		file("steps: 1"):            "must be one JSON document",
		file(`{"tailInSeconds":0}`): "tailInSeconds must be between 1 and 604800, not 0",
	} {
		require.Contains(t, h.line(2, "policy put "+args), says)
	}
}

// withoutName is a policy without what depends on its name.
func withoutName(t *testing.T, text string) (o rest.Object) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &o))
	for _, member := range []string{"name", "etag", "builtIn", "isDefault"} {
		delete(o, member)
	}
	return o
}
