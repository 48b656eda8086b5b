package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog/spec"
	"postrider/internal/cli/rest"
)

// settingsOf parses the flags of a table.
func settingsOf(t *testing.T, table []spec.Setting, args ...string) (rest.Object, error) {
	t.Helper()
	flags := newSettingFlags(table)
	parser, err := kong.New(&flags)
	require.NoError(t, err)
	if _, err := parser.Parse(args); err != nil {
		return nil, err
	}
	return flags.Settings(nil)
}

// A new row of any kind in the table is a flag, without further code.
func TestANewSettingIsAFlag(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		kind    spec.Kind
		choices []string
		args    []string
		want    string
	}{
		{kind: spec.Text, args: []string{"--brand-new", ""}, want: `""`},
		{kind: spec.URL, args: []string{"--brand-new", "https://example.com"}, want: `"https://example.com"`},
		{kind: spec.PEM, args: []string{"--brand-new", writtenFile(t, "PEM\n")}, want: `"PEM"`},
		{kind: spec.Time, args: []string{"--brand-new", "2030-01-31"}, want: `"2030-01-31T00:00:00Z"`},
		{kind: spec.Choice, choices: []string{"Red", "Green"}, args: []string{"--brand-new", "red"}, want: `"Red"`},
		{kind: spec.Choice, choices: []string{"Red", "Green"}, args: []string{"--brand-new", "blue"}, want: `"blue"`},
		{kind: spec.Whole, args: []string{"--brand-new", "0"}, want: `0`},
		{kind: spec.Number, args: []string{"--brand-new", "0.5"}, want: `0.5`},
		{kind: spec.Switch, args: []string{"--brand-new"}, want: `true`},
		{kind: spec.Switch, args: []string{"--brand-new=False"}, want: `false`},
		{kind: spec.Lines, args: []string{"--brand-new", "a,b", "--brand-new", "c"}, want: `["a","b","c"]`},
		{kind: spec.List, args: []string{"--brand-new", "1,2.5"}, want: `[1,2.5]`},
		{kind: spec.JSON, args: []string{"--brand-new", `{"a":1.50}`}, want: `{"a":1.50}`},
	} {
		table := append([]spec.Setting{{
			Name: "outer.brandNew", Section: spec.Advanced, Kind: row.kind, Choices: row.choices, Default: "none",
			Help: "Says \"so\": {1} \\ 100 %.",
		}}, spec.Subscription...)
		settings, err := settingsOf(t, table, append(row.args, "--policy", "ga-2019")...)
		require.NoError(t, err, row.kind)
		require.JSONEq(t, `{"outer":{"brandNew":`+row.want+`},"retryPolicy":{"policy":"ga-2019"}}`, encoded(t, settings))
		settings, err = settingsOf(t, table)
		require.NoError(t, err)
		require.Empty(t, settings)
		require.Equal(t, []diffLine{{"outer.brandNew", "1", "2"}},
			diff(table, rest.Object{"outer": rest.Object{"brandNew": 1}}, rest.Object{"outer": rest.Object{"brandNew": 2}}))
	}
}

func writtenFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestConnectionFlags(t *testing.T) {
	t.Parallel()
	settings, err := settingsOf(t, spec.Subscription, "--minimum-tls-version-allowed", "1.3",
		"--certificate-authorities", writtenFile(t, "CA\n"), "--client-certificate", writtenFile(t, "CERT\n"),
		"--client-key", writtenFile(t, "KEY\n"), "--oauth2-token-url", "https://login.example.com/token",
		"--oauth2-client-id", "postrider", "--oauth2-client-secret-file", writtenFile(t, "s3cret\n"),
		"--oauth2-scope", "api://orders/.default")
	require.NoError(t, err)
	require.JSONEq(t, `{"minimumTlsVersionAllowed":"1.3","certificateAuthorities":"CA",`+
		`"clientCertificate":{"certificate":"CERT","privateKey":"KEY"},
		"oauth2":{"tokenUrl":"https://login.example.com/token","clientId":"postrider","clientSecret":"s3cret",`+
		`"scope":"api://orders/.default"}}`, encoded(t, settings))
	_, err = settingsOf(t, spec.Subscription, "--client-key", "/none")
	require.Error(t, err)
}
