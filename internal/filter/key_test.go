package filter_test

import (
	"fmt"
	"testing"

	"postrider/internal/filter"

	"github.com/stretchr/testify/require"
)

var gridEvent = filter.EventView{
	ID: "id-1", Type: "Shop.Placed", Subject: "/s", Topic: "/topics/orders", DataVersion: "2.0",
	Body: []byte(`{"id":"id-1","topic":"orders","subject":"\/s","eventType":"Shop.Placed",` +
		`"eventTime":"2026-01-31T00:00:00Z","dataVersion":"2.0",
		"metadataVersion":"1","Own":"o","number":5,"data":{"Subject":"inside","a":{"b":{"c":"deep"}},"a.b":"dotted",` +
		`"é":"accent","x":1,"x":"last"}}`),
}

var cloudEvent = filter.EventView{
	CloudEvent: true, ID: "id-2", Type: "shop.placed", Subject: "", Source: "/src",
	Body: []byte(`{"specversion":"1.0","id":"id-2","type":"shop.placed","source":"/src","subject":null,` +
		`"time":"2026-01-31T00:00:00Z",
		"comexampleothervalue":51,"flag":true,"text":"t","data_base64":"AAA="}`),
}

// matchesValue reports whether a key is a string.
func matchesValue(t *testing.T, view *filter.EventView, key, value string) bool {
	t.Helper()
	f := filterOf(t, false, fmt.Sprintf(`{"operatorType":"StringIn","key":%q,"values":[%q]}`, key, value))
	require.NoError(t, f.Validate())
	return f.Matches(view)
}

func TestFilterKeys(t *testing.T) {
	t.Parallel()
	for view, rows := range map[*filter.EventView][]struct {
		key, value string
		want       bool
	}{
		&gridEvent: {
			{"id", "id-1", true},
			{"ID", "id-1", true},
			{"Topic", "/topics/orders", true},
			{"topic", "orders", false}, // it is delivered with its path
			{"Subject", "/s", true},
			{"EVENTTYPE", "shop.placed", true},
			{"type", "shop.placed", false},
			{"source", "/topics/orders", false},
			{"eventTime", "2026-01-31T00:00:00Z", true},
			{"dataversion", "2.0", true},
			{"metadataVersion", "1", true},
			{"Own", "o", true},
			{"own", "o", false},
			{"number", "5", false},
			{"data.Subject", "inside", true},
			{"Data.Subject", "inside", true},
			{"data.subject", "inside", false},
			{"data.a.b.c", "deep", true},
			{"data.a.b", "dotted", false},
			{"data.é", "accent", true},
			{"data.x", "last", true},
			{"subject.x", "/s", false},
		},
		&cloudEvent: {
			{"Id", "id-2", true},
			{"Type", "SHOP.PLACED", true},
			{"eventType", "shop.placed", false},
			{"source", "/src", true},
			{"SpecVersion", "1.0", true},
			{"time", "2026-01-31T00:00:00Z", true},
			{"comexampleothervalue", "51", true},
			{"flag", "TRUE", true},
			{"text", "T", true},
			{"topic", "", false},
			{"subject", "", false},
			{"data_base64", "AAA=", true},
		},
	} {
		for _, row := range rows {
			require.Equal(t, row.want, matchesValue(t, view, row.key, row.value), "%s=%s", row.key, row.value)
		}
	}
}

// A decoded member that is "" may be absent, null or empty in the body.
func TestEmptyMembers(t *testing.T) {
	t.Parallel()
	missing := func(view filter.EventView, key string) bool {
		return filterOf(t, false, fmt.Sprintf(`{"operatorType":"IsNullOrUndefined","key":%q}`, key)).Matches(&view)
	}
	require.True(t, missing(cloudEvent, "subject"), "null")
	require.False(t, missing(filter.EventView{}, "subject"), "an Event Grid event has one, though it may be empty")
	require.True(t, missing(filter.EventView{Body: []byte(`{}`)}, "dataVersion"))
	require.False(t, missing(filter.EventView{Body: []byte(`{"dataVersion":""}`)}, "dataVersion"))
	require.True(t, missing(filter.EventView{CloudEvent: true, Topic: "/topics/orders"}, "topic"),
		"CloudEvents knows no topic")
	require.True(t, missing(filter.EventView{Source: "/s"}, "source"))
}

// data may be any JSON value; only attributes of a CloudEvent are always texts.
func TestDataWithoutObject(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]bool{
		`{"data":"5"}`: true, `{"data":5}`: false, `{"data":{"data":"5"}}`: false, `{}`: false,
	} {
		require.Equal(t, want, matchesValue(t, &filter.EventView{CloudEvent: true, Body: []byte(body)}, "data", "5"), body)
	}
	f := filterOf(t, false, `{"operatorType":"NumberIn","key":"comexampleothervalue","values":[51]}`)
	require.True(t, f.Matches(&cloudEvent), "and a number all the same")
}
