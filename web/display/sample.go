package display

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/google/uuid"

	"postrider/internal/catalog"
	"postrider/internal/event"
)

// SpellOut writes invisible characters of a JSON document as escapes, so that a copied command hides nothing.
func SpellOut(document string) string {
	var out strings.Builder
	for _, r := range document {
		if !IsHidden(r) {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.String()
}

// DollarQuote writes a text as an SQL literal without escapes. Its tag neither occurs in the text nor begins at its
// end: the tag $event$ would end "…$event" too early.
func DollarQuote(text string) string {
	tag := "$event$"
	for n := 1; strings.Index(text+tag, tag) != len(text); n++ {
		tag = "$event" + strconv.Itoa(n) + "$"
	}
	return tag + text + tag
}

const (
	sampleType    = "Shop.OrderPlaced"
	sampleSubject = "orders/1807"
	sampleData    = `{"total":12.50,"currency":"EUR"}`
)

// SampleEvent is an event that the topic accepts.
func SampleEvent(t *catalog.Topic, now time.Time) string {
	id, at := uuid.NewString(), now.UTC().Format(time.RFC3339)
	switch t.InputSchema {
	case event.CloudEvents:
		return Pretty(fmt.Sprintf(`{"specversion":"1.0","id":"%s","source":"/%s","type":"%s","subject":"%s",`+
			`"time":"%s","datacontenttype":"application/json","data":%s}`, id, t.Name, sampleType, sampleSubject, at,
			sampleData))
	case event.EventGrid:
		return Pretty(fmt.Sprintf(`{"id":"%s","eventType":"%s","subject":"%s","eventTime":"%s",`+
			`"dataVersion":"1.0","data":%s}`, id, sampleType, sampleSubject, at, sampleData))
	default:
		text, err := json.Marshal(sampleOfMapping(t.InputSchemaMapping, id, at))
		if err != nil {
			return "{}"
		}
		return Pretty(string(text))
	}
}

// sampleOfMapping returns a member for each field that the mapping names.
func sampleOfMapping(m *event.Mapping, id, at string) map[string]any {
	members := map[string]any{"currency": "EUR"}
	if m == nil {
		return members
	}
	for _, member := range []struct {
		field *event.MappedField
		value string
	}{{m.Properties.ID, id}, {m.Properties.EventTime, at}} {
		if member.field != nil {
			setAt(members, member.field.SourceField, member.value)
		}
	}
	for _, member := range []struct {
		field *event.MappedFieldWithDefault
		value string
	}{
		{m.Properties.EventType, sampleType}, {m.Properties.Subject, sampleSubject}, {m.Properties.DataVersion, "1.0"},
	} {
		if member.field != nil && member.field.SourceField != "" {
			setAt(members, member.field.SourceField, member.value)
		}
	}
	return members
}

// setAt sets a value by its path, and creates the objects that contain it.
func setAt(members map[string]any, path, value string) {
	name, rest, nested := strings.Cut(path, ".")
	if !nested {
		members[name] = value
		return
	}
	inner, ok := members[name].(map[string]any)
	if !ok {
		inner = map[string]any{}
		members[name] = inner
	}
	setAt(inner, rest, value)
}
