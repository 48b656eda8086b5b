package web

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog/spec"
	"postrider/internal/jsonscan"
	"postrider/web/form"
)

// A new setting of a table gets a form field without a change in this package.
func TestNewSettingGetsField(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		setting                      spec.Setting
		stored, shown, entered, sent string
	}{
		"a number": {
			spec.Setting{Name: "group.new", Kind: spec.Whole, Min: 1, Max: 9, Default: "5"},
			`3`, "3", "12345678901234567890", `12345678901234567890`,
		},
		"a check box": {spec.Setting{Kind: spec.Switch, Default: "true"}, `false`, "false", "true", `true`},
		"a switch":    {spec.Setting{Kind: spec.Switch, Default: "as before"}, `false`, "false", "", `null`},
		"a choice":    {spec.Setting{Kind: spec.Choice, Choices: []string{"a", "b"}, Default: "a"}, `"b"`, "b", "a", `"a"`},
		"a text":      {spec.Setting{Name: "group.inner.new", Kind: spec.Text, Default: "none"}, `" x"`, " x", "y ", `"y "`},
		"lines":       {spec.Setting{Kind: spec.Lines, Default: "none"}, `["a"," b"]`, "a\n\" b\"", "c\nd", `["c","d"]`},
		"a list":      {spec.Setting{Kind: spec.List, Max: 9, Default: "none"}, `[1,2]`, "1, 2", "3 4.50", `[3,4.50]`},
		"JSON":        {spec.Setting{Kind: spec.JSON, Default: "none"}, `[1,2]`, "[\n  1,\n  2\n]", `{"a":1}`, `{"a":1}`},
		"a time": {
			spec.Setting{Kind: spec.Time, Default: "never"},
			`"2030-01-31T12:00:00.5Z"`, "2030-01-31T12:00:00", "2031-01-31T12:00", `"2031-01-31T12:00:00Z"`,
		},
		"untouched": {
			spec.Setting{Kind: spec.Time, Default: "never"},
			`"2030-01-31T12:00:00.5Z"`, "2030-01-31T12:00:00", "2030-01-31T12:00:00", `"2030-01-31T12:00:00.5Z"`,
		},
		"PEM": {spec.Setting{Kind: spec.PEM, Default: "none"}, `"a\n"`, "a\n", "b\n", `"b\n"`},
	} {
		s := row.setting
		s.Name, s.Section, s.Label, s.Help = cmp.Or(s.Name, "new"), spec.Limits, "New setting", "Help of the setting."
		e := &editor{Input: form.New(), table: append(slices.Clone(spec.Topic), s), name: "orders"}
		object, want := map[string]any{}, map[string]any{}
		form.Put(object, s.Name, json.RawMessage(row.stored))
		e.stored = form.SettingsIn(e.table, asJSON(t, object))
		e.fill()
		field := fieldNamed(t, e.sections(), s.Name)
		require.Equal(t, row.shown, field.Value, name)
		page := shown(t, "field", field)
		require.Contains(t, page, "New setting")
		require.Contains(t, page, "Help of the setting.")
		e.Set(s.Name, row.entered)
		settings, mistakes := e.settings()
		require.Empty(t, mistakes)
		form.Put(want, s.Name, json.RawMessage(row.sent))
		for member := range want {
			require.Equal(t, string(asJSON(t, want[member])), string(asJSON(t, settings[member])), name)
		}
	}
}

func asJSON(t *testing.T, value any) json.RawMessage {
	t.Helper()
	text, err := jsonscan.Encode(value)
	require.NoError(t, err)
	return text
}

func fieldNamed(t *testing.T, sections []formSection, name string) form.Field {
	t.Helper()
	for _, section := range sections {
		for _, field := range section.Fields {
			if field.Name == name {
				require.Equal(t, spec.Limits, section.Title)
				return field
			}
		}
	}
	require.Fail(t, "no field "+name)
	return form.Field{}
}

// A form neither shows nor sends secrets unless the user enters one.
func TestSecretFields(t *testing.T) {
	t.Parallel()
	secret := spec.Setting{
		Name: "group.secret", Section: spec.Limits, Kind: spec.Text, Secret: true, Default: "the stored one",
	}
	e := &editor{Input: form.New(), table: []spec.Setting{secret}, name: "orders"}
	e.stored = form.SettingsIn(e.table, json.RawMessage(`{"group":{"secret":"5f0c"}}`))
	require.Empty(t, e.stored)
	e.fill()
	require.Contains(t, shown(t, "field", fieldNamed(t, e.sections(), secret.Name)), `type="password"`)
	settings, _ := e.settings()
	require.Empty(t, settings)
	e.Set(secret.Name, " new")
	settings, _ = e.settings()
	require.Equal(t, map[string]any{"group": map[string]any{"secret": " new"}}, settings)
}

func TestFieldOfError(t *testing.T) {
	t.Parallel()
	fields := []string{
		"name", "filter.advancedFilters", "filter.advancedFilters[0].key", "filter.advancedFilters[0].value",
		"filter.advancedFilters[1].key", "labels", "retryPolicy.eventTimeToLiveInMinutes",
		"deadLetterDestination.properties.url",
	}
	for target, want := range map[string]string{
		"name": "name", "labels[3]": "labels", "filter.advancedFilters[0].values[2]": "filter.advancedFilters[0].value",
		"filter.advancedFilters[1]":            "filter.advancedFilters",
		"filter.advancedFilters[1].key":        "filter.advancedFilters[1].key",
		"retryPolicy.eventTimeToLiveInMinutes": "retryPolicy.eventTimeToLiveInMinutes",
		"deadLetterDestination.properties":     "deadLetterDestination.properties.url", "nothing": "", "": "", "lab": "",
	} {
		require.Equal(t, want, fieldOf(target, fields), target)
	}
}

// formLink is a link to a form that changes the configuration.
var formLink = regexp.MustCompile(`<a [^>]*href="[^"]*/(new|edit|keys|delete|publish|new-topic)["?][^>]*>`)

// operation is a link or a form that leads to the page of an operation.
var operation = regexp.MustCompile(`(<span class="needs-operator">[^<]*)?` +
	`<a [^>]*href="[^"]*/(redeliver|repair|resolve|` +
	`purge|retry|cancel)[?"][^>]*>|<[^>]*>[^<>]*<a [^>]*href="{{\.(Redeliver|Retry)}}"|` +
	`<div [^>]*><p><a [^>]*href="{{\$\.Apply}}"|` +
	`<form [^>]*(get|{{end}})" action="[^"]*/(redeliver|repair|resolve|purge|retry|cancel)"|<form [^>]*id="checked"`)

// Links to operations and to forms of administrators, and forms that only open pages of operations, have the class that
// hides them from other roles.
func TestLinksNeedARole(t *testing.T) {
	t.Parallel()
	names, err := files.ReadDir("templates")
	require.NoError(t, err)
	for class, link := range map[string]*regexp.Regexp{"needs-operator": operation, "needs-admin": formLink} {
		links := 0
		for _, file := range names {
			text, err := files.ReadFile("templates/" + file.Name())
			require.NoError(t, err)
			for _, found := range link.FindAllString(string(text), -1) {
				require.Contains(t, found, class, file.Name())
				links++
			}
		}
		require.GreaterOrEqual(t, links, 10, class)
	}
}
