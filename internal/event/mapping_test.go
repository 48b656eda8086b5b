package event

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// documented is the mapping of Microsoft's page, in the form of Azure's API.
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

func TestMappingNullIsAbsent(t *testing.T) {
	t.Parallel()
	m := mapping(t,
		`{"inputSchemaMappingType":"Json","properties":{"id":null,"topic":null,"eventTime":null,"dataVersion":null,
		"eventType":{"sourceField":"what","defaultValue":null},"subject":{"sourceField":null,"defaultValue":"s"}}}`)
	require.Nil(t, m.Properties.ID)
	require.Nil(t, m.Properties.DataVersion)
	require.Equal(t, &MappedFieldWithDefault{SourceField: "what"}, m.Properties.EventType)
	require.Empty(t, m.Properties.Subject.SourceField)
}

func TestMappingValidate(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 1025)
	const sound = `"eventType":{"sourceField":"t"},"subject":{"sourceField":"s"}`
	const none = ": must have a sourceField, a defaultValue or both"
	const names = ": must be names with a dot between them, none of them empty"
	const required, is0, is1025 = ": is required: give a sourceField, a defaultValue or both",
		": must be 1 to 1024 bytes long, is 0", ": must be 1 to 1024 bytes long, is 1025"
	for _, c := range []struct{ properties, message string }{
		{`"subject":{"sourceField":"s"}`, "eventType" + required},
		{`"eventType":{"sourceField":"t"}`, "subject" + required},
		{`"eventType":{},"subject":{"sourceField":"s"}`, "eventType" + none},
		{sound + `,"dataVersion":{}`, "dataVersion" + none},
		{sound + `,"id":{}`, "id.sourceField" + is0},
		{sound + `,"topic":{"sourceField":""}`, "topic.sourceField" + is0},
		{sound + `,"eventTime":{"sourceField":"` + long + `"}`, "eventTime.sourceField" + is1025},
		{`"eventType":{"sourceField":"` + long + `"}`, "eventType.sourceField" + is1025},
		{`"eventType":{"sourceField":"a\nb"}`, "eventType.sourceField: must not contain a line break"},
		{`"eventType":{"sourceField":"a..b"}`, "eventType.sourceField" + names},
		{sound + `,"id":{"sourceField":"a."}`, "id.sourceField" + names},
		{`"eventType":{"defaultValue":""}`, "eventType.defaultValue" + is0},
		{`"eventType":{"sourceField":"t","defaultValue":"a\u0000"}`, "eventType.defaultValue: must not contain NUL"},
		{
			sound + `,"dataVersion":{"defaultValue":"` + long + `"}`,
			"dataVersion.defaultValue: must be 0 to 1024 bytes long, is 1025",
		},
	} {
		var m Mapping
		require.NoError(t, json.Unmarshal([]byte(`{"inputSchemaMappingType":"Json","properties":{`+c.properties+`}}`), &m))
		var invalid *MappingError
		require.ErrorAs(t, m.Validate(), &invalid, c.properties)
		require.EqualError(t, invalid, "inputSchemaMapping.properties."+c.message)
	}
	for _, kind := range []string{"", "json", "Xml"} {
		require.EqualError(t, (&Mapping{Type: kind}).Validate(), `inputSchemaMapping.inputSchemaMappingType: must be "Json"`)
	}
}
