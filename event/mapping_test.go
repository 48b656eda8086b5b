package event

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// documented is the mapping of Microsoft's page, in the form that Azure's API has.
const documented = `{"inputSchemaMappingType":"Json","properties":{` +
	`"eventType":{"sourceField":"myEventTypeField"},"subject":{"defaultValue":"DefaultSubject"},` +
	`"dataVersion":{"defaultValue":"1.0"}}}`

// everyField maps every member of the envelope, three of them with a default as well.
const everyField = `{"inputSchemaMappingType":"Json","properties":{"id":{"sourceField":"key"},` +
	`"topic":{"sourceField":"where"},` +
	`"eventTime":{"sourceField":"when"},"eventType":{"sourceField":"what","defaultValue":"Default.Type"},` +
	`"subject":{"sourceField":"who","defaultValue":"default subject"},"dataVersion":{"sourceField":"version",` +
	`"defaultValue":"7"}}}`

func mapping(t testing.TB, text string) *Mapping {
	t.Helper()
	m := new(Mapping)
	require.NoError(t, json.Unmarshal([]byte(text), m))
	require.NoError(t, m.Validate())
	return m
}

func TestMappingRoundTrips(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		documented, everyField,
		`{"inputSchemaMappingType":"Json","properties":{"eventType":{"defaultValue":"t"},"subject":{"defaultValue":""}}}`,
	} {
		printed, err := json.Marshal(mapping(t, text))
		require.NoError(t, err)
		require.Equal(t, text, string(printed))
	}
}

func TestMappingTakesNullForAbsent(t *testing.T) {
	t.Parallel()
	m := mapping(t,
		`{"inputSchemaMappingType":"Json","properties":{"id":null,"topic":null,"eventTime":null,"dataVersion":null,
		"eventType":{"sourceField":"what","defaultValue":null},"subject":{"sourceField":null,"defaultValue":"s"}}}`)
	require.Nil(t, m.Properties.ID)
	require.Nil(t, m.Properties.DataVersion)
	require.Equal(t, &MappedFieldWithDefault{SourceField: "what"}, m.Properties.EventType)
	require.Empty(t, m.Properties.Subject.SourceField)

	before := *m
	require.NoError(t, m.UnmarshalJSON([]byte("null")))
	require.Equal(t, before, *m)
}

func TestMappingRefusesToBeRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, message string }{
		{`[]`, "inputSchemaMapping: must be an object"},
		{`1`, "inputSchemaMapping: must be an object"},
		{`{"properties":[]}`, "inputSchemaMapping.properties: must be an object"},
		{`{"InputSchemaMappingType":"Json"}`, "inputSchemaMapping.InputSchemaMappingType: is unknown: there are " +
			"inputSchemaMappingType, properties"},
		{`{"inputSchemaMappingType":5}`, "inputSchemaMapping.inputSchemaMappingType: must be a string, is a number"},
		{`{"properties":{},"properties":{}}`, "inputSchemaMapping.properties: appears twice"},
		{
			`{"properties":{"eventtype":{"sourceField":"x"}}}`,
			"inputSchemaMapping.properties.eventtype: is unknown: there are id, topic, eventTime, eventType, subject, " +
				"dataVersion",
		},
		{`{"properties":{"id":"x"}}`, "inputSchemaMapping.properties.id: must be an object"},
		{`{"properties":{"id":{"sourceField":1}}}`, "inputSchemaMapping.properties.id.sourceField: must be a string, is a " +
			"number"},
		{`{"properties":{"id":{"sourceField":"x","defaultValue":"y"}}}`, "inputSchemaMapping.properties.id.defaultValue: " +
			"is unknown: there are sourceField"},
		{`{"properties":{"eventType":{"sourceField":[]}}}`, "inputSchemaMapping.properties.eventType.sourceField: must be " +
			"a string, is an array"},
		{`{"properties":{"eventType":{"defaultValue":true}}}`, "inputSchemaMapping.properties.eventType.defaultValue: must " +
			"be a string, is a boolean"},
		{`{"properties":{"subject":{"defaultValue":"\ud800"}}}`, "inputSchemaMapping.properties.subject.defaultValue: must " +
			"not contain a lone surrogate"},
		{`{"properties":{"subject":{"default":"x"}}}`, "inputSchemaMapping.properties.subject.default: is unknown: there " +
			"are sourceField, defaultValue"},
	} {
		m := Mapping{Type: "kept"}
		err := json.Unmarshal([]byte(c.text), &m)
		var invalid *MappingError
		require.ErrorAs(t, err, &invalid, c.text)
		require.EqualError(t, invalid, c.message)
		require.Equal(t, Mapping{Type: "kept"}, m, "nothing is half read")
	}
	for text, message := range map[string]string{
		"":        "inputSchemaMapping: is not one JSON object in UTF-8",
		"\xff":    "inputSchemaMapping: is not one JSON object in UTF-8",
		"{":       "inputSchemaMapping: is not one JSON object: the text ends too early",
		`{"a":1`:  "inputSchemaMapping: is not one JSON object: the text ends too early",
		"{} {}":   "inputSchemaMapping: is not one JSON object: it goes on after its end",
		`{"a" 1}`: "inputSchemaMapping: is not one JSON object: expected ':' after a member's name",
	} {
		require.EqualError(t, new(Mapping).UnmarshalJSON([]byte(text)), message, text)
	}
}

func TestMappingValidate(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 1025)
	const sound = `"eventType":{"sourceField":"t"},"subject":{"sourceField":"s"}`
	for _, c := range []struct{ properties, message string }{
		{`"subject":{"sourceField":"s"}`, "inputSchemaMapping.properties.eventType: is required: give a sourceField, a " +
			"defaultValue or both"},
		{`"eventType":{"sourceField":"t"}`, "inputSchemaMapping.properties.subject: is required: give a sourceField, a " +
			"defaultValue or both"},
		{`"eventType":{},"subject":{"sourceField":"s"}`, "inputSchemaMapping.properties.eventType: must have a " +
			"sourceField, a defaultValue or both"},
		{sound +
			`,"dataVersion":{}`, "inputSchemaMapping.properties.dataVersion: must have a sourceField, a defaultValue or both"},
		{sound + `,"id":{}`, "inputSchemaMapping.properties.id.sourceField: must be 1 to 1024 bytes long, is 0"},
		{sound + `,"topic":{"sourceField":""}`, "inputSchemaMapping.properties.topic.sourceField: must be 1 to 1024 bytes " +
			"long, is 0"},
		{sound + `,"eventTime":{"sourceField":"` + long + `"}`, "inputSchemaMapping.properties.eventTime.sourceField: must " +
			"be 1 to 1024 bytes long, is 1025"},
		{`"eventType":{"sourceField":"` + long + `"}`, "inputSchemaMapping.properties.eventType.sourceField: must be 1 to " +
			"1024 bytes long, is 1025"},
		{`"eventType":{"sourceField":"a\nb"}`, "inputSchemaMapping.properties.eventType.sourceField: must not contain a " +
			"line break"},
		{`"eventType":{"defaultValue":""}`, "inputSchemaMapping.properties.eventType.defaultValue: must be 1 to 1024 bytes " +
			"long, is 0"},
		{
			`"eventType":{"sourceField":"t","defaultValue":"a\u0000"}`,
			"inputSchemaMapping.properties.eventType.defaultValue: must not contain NUL",
		},
		{sound + `,"dataVersion":{"defaultValue":"` + long +
			`"}`, "inputSchemaMapping.properties.dataVersion.defaultValue: must be 0 to 1024 bytes long, is 1025"},
	} {
		var m Mapping
		require.NoError(t, json.Unmarshal([]byte(`{"inputSchemaMappingType":"Json","properties":{`+c.properties+`}}`), &m))
		var invalid *MappingError
		require.ErrorAs(t, m.Validate(), &invalid, c.properties)
		require.EqualError(t, invalid, c.message)
	}
	for _, kind := range []string{"", "json", "Xml"} {
		require.EqualError(t, (&Mapping{Type: kind}).Validate(), `inputSchemaMapping.inputSchemaMappingType: must be "Json"`)
	}
}

func FuzzMapping(f *testing.F) {
	f.Add([]byte(documented))
	f.Add([]byte(everyField))
	f.Add([]byte(`{"inputSchemaMappingType":null,"properties":{"id":null}}`))
	for _, src := range documents {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var m Mapping
		if err := m.UnmarshalJSON(text); err != nil {
			var invalid *MappingError
			require.ErrorAs(t, err, &invalid)
			require.NotEmpty(t, invalid.Message)
			return
		}
		_ = m.Validate()
		printed, err := json.Marshal(&m)
		require.NoError(t, err)
		var again Mapping
		require.NoError(t, json.Unmarshal(printed, &again))
		require.Equal(t, m, again)
	})
}
