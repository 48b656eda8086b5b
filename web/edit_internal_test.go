package web

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog/spec"
)

// A new setting of a table gets a form field without a change in this package.
func TestNewSettingGetsField(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		setting       spec.Setting
		stored, shown string
		entered, sent string
	}{
		"a number": {
			spec.Setting{Name: "group.new", Kind: spec.Whole, Min: 1, Max: 9, Default: "5"},
			`3`, "3", "12345678901234567890", `12345678901234567890`,
		},
		"a check box": {spec.Setting{Name: "new", Kind: spec.Switch, Default: "true"}, `false`, "false", "true", `true`},
		"a switch":    {spec.Setting{Name: "new", Kind: spec.Switch, Default: "as before"}, `false`, "false", "", `null`},
		"a choice": {
			spec.Setting{Name: "new", Kind: spec.Choice, Choices: []string{"a", "b"}, Default: "a"},
			`"b"`, "b", "a", `"a"`,
		},
		"a text": {spec.Setting{Name: "group.inner.new", Kind: spec.Text, Default: "none"}, `" x"`, " x", "y ", `"y "`},
		"lines": {
			spec.Setting{Name: "new", Kind: spec.Lines, Default: "none"},
			`["a"," b"]`, "a\n\" b\"", "c\nd", `["c","d"]`,
		},
		"a list": {
			spec.Setting{Name: "new", Kind: spec.List, Max: 9, Default: "none"},
			`[1,2]`, "1, 2", "3 4.50", `[3,4.50]`,
		},
		"JSON": {
			spec.Setting{Name: "new", Kind: spec.JSON, Default: "none"},
			`[1,2]`, "[\n  1,\n  2\n]", `{"a":1}`, `{"a":1}`,
		},
		"a time": {
			spec.Setting{Name: "new", Kind: spec.Time, Default: "never"},
			`"2030-01-31T12:00:00.5Z"`, "2030-01-31T12:00:00", "2031-01-31T12:00", `"2031-01-31T12:00:00Z"`,
		},
		"untouched": {
			spec.Setting{Name: "new", Kind: spec.Time, Default: "never"},
			`"2030-01-31T12:00:00.5Z"`, "2030-01-31T12:00:00", "2030-01-31T12:00:00", `"2030-01-31T12:00:00.5Z"`,
		},
		"PEM": {spec.Setting{Name: "new", Kind: spec.PEM, Default: "none"}, `"a\n"`, "a\n", "b\n", `"b\n"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := row.setting
			s.Section, s.Label, s.Help = spec.Limits, "New setting", "Help of the setting."
			e := &editor{form: newForm(), table: append(slices.Clone(spec.Topic), s), name: "orders"}
			object := map[string]any{}
			put(object, s.Name, json.RawMessage(row.stored))
			text, err := plainJSON(object)
			require.NoError(t, err)
			e.stored = settingsIn(e.table, text)
			e.fill()
			field := fieldNamed(t, e.sections(), s.Name)
			require.Equal(t, row.shown, field.Value)
			page := shown(t, "field", field)
			require.Contains(t, page, "New setting")
			require.Contains(t, page, "Help of the setting.")
			e.set(s.Name, row.entered)
			settings, mistakes := e.settings()
			require.Empty(t, mistakes)
			want := map[string]any{}
			put(want, s.Name, json.RawMessage(row.sent))
			for name := range want {
				text, err = plainJSON(settings[name])
				require.NoError(t, err)
				expected, err := plainJSON(want[name])
				require.NoError(t, err)
				require.Equal(t, string(expected), string(text))
			}
		})
	}
}

func fieldNamed(t *testing.T, sections []formSection, name string) formField {
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
	return formField{}
}

// A form neither shows nor sends secrets unless the user enters one.
func TestSecretFields(t *testing.T) {
	t.Parallel()
	secret := spec.Setting{
		Name: "group.secret", Section: spec.Limits, Kind: spec.Text, Secret: true, Default: "the stored one",
	}
	e := &editor{form: newForm(), table: []spec.Setting{secret}, name: "orders"}
	e.stored = settingsIn(e.table, json.RawMessage(`{"group":{"secret":"5f0c"}}`))
	require.Empty(t, e.stored)
	e.fill()
	require.Contains(t, shown(t, "field", fieldNamed(t, e.sections(), secret.Name)), `type="password"`)
	settings, _ := e.settings()
	require.Empty(t, settings)
	e.set(secret.Name, " new")
	settings, _ = e.settings()
	require.Equal(t, map[string]any{"group": map[string]any{"secret": " new"}}, settings)
}

func TestChangesByAnotherUser(t *testing.T) {
	t.Parallel()
	now := &editor{stored: map[string]json.RawMessage{
		"a": json.RawMessage("2"), "c": json.RawMessage("true"), "d": json.RawMessage("[1]"),
	}}
	e := &editor{form: newForm(), name: "orders"}
	e.set("was", `{"a":1,"b":"x","d":[1]}`)
	require.NoError(t, e.compare(now, nil))
	require.Equal(t, []change{{"a", "1", "2"}, {"b", `"x"`, "not set"}, {"c", "not set", "true"}}, e.changes)
	e.set("was", "no JSON")
	require.NoError(t, e.compare(now, nil))
}
