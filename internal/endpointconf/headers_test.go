package endpointconf_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/endpointconf"
	"postrider/internal/filter"
)

type attribute = endpointconf.DeliveryAttribute

func static(name, value string) attribute {
	a := attribute{Name: name, Type: endpointconf.AttributeStatic}
	a.Value = &value
	return a
}

func secret(name, value string) attribute {
	a := static(name, value)
	a.IsSecret = true
	return a
}

// withheld is a secret as reads show it.
func withheld(name string) attribute {
	a := secret(name, "")
	a.Value = nil
	return a
}

func dynamic(name, sourceField string) attribute {
	a := attribute{Name: name, Type: endpointconf.AttributeDynamic}
	a.SourceField = sourceField
	return a
}

// mistakes are "field message", in order, without the name of the property.
func mistakes(found []filter.ValidationError) []string {
	list := []string{}
	for _, f := range found {
		list = append(list, strings.TrimPrefix(f.Field, "deliveryAttributeMappings")+" "+f.Message)
	}
	return list
}

func TestValidDeliveryAttributes(t *testing.T) {
	t.Parallel()
	for name, list := range map[string][]attribute{
		"none":              nil,
		"the page's own":    {static("staticproperty1", "somestaticvalue2"), dynamic("dynamicproperty1", "data.key1")},
		"Authorization":     {secret("Authorization", "BEARER SlAV32hkKG")},
		"a withheld secret": {withheld("x-kept")},
		"User-Agent":        {static("User-Agent", "shop/1")},
		"every character":   {static("!#$%&'*+-.^_`|~09azAZ", "v")},
		"the longest name":  {static(strings.Repeat("n", 256), "v")},
		"the longest value": {static("X-A", strings.Repeat("v", 4096))},
		"a tab and a space": {static("X-A", "a\tb c")},
		"beyond ASCII":      {static("X-A", "é")},
		"almost like ours":  statics("aeg", "contents", "webhook", "hosts"),
		"ten":               statics("a", "b", "c", "d", "e", "f", "g", "h", "i", "j"),
	} {
		require.Empty(t, endpointconf.HeaderLimits{}.Mistakes(list, []attribute{secret("X-Kept", "v")}), name)
	}
}

func statics(names ...string) (list []attribute) {
	for _, name := range names {
		list = append(list, static(name, "v"))
	}
	return list
}

func TestInvalidDeliveryAttributes(t *testing.T) {
	t.Parallel()
	a := func(change func(*attribute)) attribute {
		a := static("X-A", "v")
		change(&a)
		return a
	}
	const notAName = "name must be a header's name: letters, digits and !#$%&'*+-.^_`|~"
	const notAValue = "properties.value must be UTF-8 without control characters, which no header can carry"
	stored := []attribute{dynamic("X-D", "id"), secret("X-A", "v")}
	for name, row := range map[string]struct {
		attribute attribute
		says      string
	}{
		"no name":      {static("", "v"), "name is required"},
		"a long name":  {static(strings.Repeat("n", 257), "v"), "name must be 1 to 256 characters long, is 257"},
		"a blank name": {static("X A", "v"), notAName},
		"a line in it": {static("X-A\r\nX-B", "v"), notAName},
		"a colon":      {static("X-A:", "v"), notAName},
		"an umlaut":    {static("Ä", "v"), notAName},
		"no type":      {a(func(a *attribute) { a.Type = "" }), "type must be Static or Dynamic"},
		"lower case":   {a(func(a *attribute) { a.Type = "static" }), "type must be Static or Dynamic"},
		"no value":     {a(func(a *attribute) { a.Value = nil }), "properties.value is required by a Static header"},
		"empty value":  {static("X-A", ""), "properties.value must be 1 to 4096 bytes long, is 0"},
		"long value":   {secret("X-A", strings.Repeat("v", 4097)), "properties.value must be 1 to 4096 bytes long, is 4097"},
		"a line break": {static("X-A", "v\r\nX-B: w"), notAValue},
		"DEL":          {static("X-A", "\x7f"), notAValue},
		"not UTF-8":    {static("X-A", "\xff"), notAValue},
		"a blank at the end": {
			static("X-A", "v "), "properties.value must not begin or end with a space or tab, which no header can carry",
		},
		"a source of a Static one": {
			a(func(a *attribute) { a.SourceField = "id" }),
			"properties.sourceField must be absent: a Static header has its value in value",
		},
		"a value of a Dynamic one": {
			a(func(a *attribute) { a.Type = endpointconf.AttributeDynamic }),
			"properties.value must be absent: a Dynamic header has its value from sourceField",
		},
		"a Dynamic secret": {
			a(func(a *attribute) { *a = dynamic("X-A", "id"); a.IsSecret = true }),
			"properties.isSecret must be absent or false: only a Static header can be a secret",
		},
		"no source": {dynamic("X-A", ""), "properties.sourceField is required"},
		"an empty one": {
			dynamic("X-A", "data..a"),
			"properties.sourceField must be names with a dot between them, none of them empty",
		},
		"a long source": {
			dynamic("X-A", strings.Repeat("k", 513)), "properties.sourceField must be 1 to 512 characters long",
		},
		"Event Grid's own": {
			static("AEG-Event-Type", "v"), "name must not begin with aeg-, content-, proxy-, webhook-: " +
				"those headers are reserved for postrider and HTTP",
		},
	} {
		found := endpointconf.HeaderLimits{}.Mistakes([]attribute{row.attribute}, stored)
		require.Equal(t, []string{"[0]." + row.says}, mistakes(found), name)
	}
	several := []attribute{static("", ""), dynamic("X-B", ""), withheld("X-A"), withheld("X-C"), withheld("X-D")}
	require.Equal(t, []string{
		"[0].name is required", "[0].properties.value must be 1 to 4096 bytes long, is 0",
		"[1].properties.sourceField is required",
		"[3].properties.value is required: no value is stored for this header",
		"[4].properties.value is required: no value is stored for this header",
	}, mistakes(endpointconf.HeaderLimits{}.Mistakes(several, stored)))
	repeated := []attribute{static("X-A", "v"), static("X-B", "v"), dynamic("x-a", "id")}
	require.Equal(t, []string{
		"[2].name repeats deliveryAttributeMappings[0].name; names are compared without regard to case",
	}, mistakes(endpointconf.HeaderLimits{}.Mistakes(repeated, nil)))
}

func TestReservedHeaders(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Content-Type", "content-length", "Content-Encoding", "Proxy-Authorization", "aeg-anything", "webhook-id",
		"Webhook-Timestamp", "webhook-signature", "WebHook-Request-Origin", "Host", "Connection", "Keep-Alive", "TE",
		"Trailer", "Transfer-Encoding", "Upgrade", "Expect", "Date", "Origin", "Traceparent", "tracestate",
		"Accept-Encoding", "HTTP2-Settings",
	} {
		found := endpointconf.HeaderLimits{}.Mistakes([]attribute{static(name, "v")}, nil)
		require.Len(t, found, 1, name)
		require.Equal(t, "deliveryAttributeMappings[0].name", found[0].Field)
		require.Contains(t, found[0].Message, "must not", name)
	}
}

func TestHeaderLimits(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{" must have at most 10 entries, has 11"},
		mistakes(endpointconf.HeaderLimits{}.Mistakes(make([]attribute, 11), nil)))
	limits := endpointconf.HeaderLimits{MaxHeaders: 1, MaxValueBytes: 2}
	require.Empty(t, limits.Mistakes([]attribute{static("X-A", "vv")}, nil))
	require.Equal(t, []string{" must have at most 1 entries, has 2"},
		mistakes(limits.Mistakes(make([]attribute, 2), nil)))
	require.Equal(t, []string{"[0].properties.value must be 1 to 2 bytes long, is 3"},
		mistakes(limits.Mistakes([]attribute{static("X-A", "vvv")}, nil)))
}

func TestKeepSecrets(t *testing.T) {
	t.Parallel()
	stored := []attribute{dynamic("X-D", "id"), secret("X-A", "one"), static("X-B", "two")}
	given := []attribute{withheld("x-a"), withheld("X-B"), secret("X-C", "three")}
	kept, err := endpointconf.KeepSecrets(given, stored)
	require.NoError(t, err)
	want := []attribute{secret("x-a", "one"), secret("X-B", "two"), secret("X-C", "three")}
	require.Equal(t, want, kept)
	require.Nil(t, given[0].Value, "what was given is not changed")

	for _, list := range [][]attribute{
		{withheld("X-A"), withheld("X-C")}, {static("X-A", "v"), withheld("X-D")},
	} {
		_, err = endpointconf.KeepSecrets(list, stored)
		var mistake *filter.ValidationError
		require.ErrorAs(t, err, &mistake)
		require.Equal(t, "deliveryAttributeMappings[1].properties.value", mistake.Field)
	}
}

// headersOf are the headers of a set for an event.
func headersOf(list []attribute, view filter.EventView, most int) map[string]string {
	got := map[string]string{}
	endpointconf.NewHeaderSet(list).Each(&view, most, func(name, value string) { got[name] = value })
	return got
}

func TestDynamicHeaders(t *testing.T) {
	t.Parallel()
	grid := filter.EventView{
		ID: "7", Type: "Shop.OrderPlaced", Subject: "orders/7", Topic: "/topics/orders", DataVersion: "2.1",
		Body: []byte(`{"id":"7","subject":"orders/7","eventType":"Shop.OrderPlaced","eventTime":"2026-01-01T00:00:00Z",` +
			`"dataVersion":"2.1","topic":"mine",
			"data":{"system":"crm","n":12345678901234567890.50,"e":1E+2,"yes":true,"no":false,"null":null,"list":[1],` +
			`"object":{"a":1},"deep":{"er":{"est":"x"}},
			"lines":"a\r\nb","nul":"a\u0000b","tab":"a\tb","lone":"\ud800","accent":"\u00e9é","blank":"  x\t",` +
			`"empty":"","del":"\u007f",` +
			`"long":"` + strings.Repeat("v", 4097) + `","full":"` + strings.Repeat("v", 4096) + `"}}`),
	}
	cloud := filter.EventView{
		CloudEvent: true, ID: "7", Type: "shop.order", Source: "/shop", Subject: "orders/7",
		Body: []byte(`{"specversion":"1.0","id":"7","type":"shop.order","source":"/shop","subject":"orders/7",` +
			`"time":"2026-01-01T00:00:00Z","partitionkey":"p1","sampled":5,"data":{"system":"crm"}}`),
	}
	custom := filter.EventView{
		Custom: true, ID: "7", Type: "order", Subject: "s", Topic: "/topics/orders", EventTime: "2026-01-01T00:00:00Z",
		Body: []byte(`{"no":7,"kind":{"name":"order"},"subject":"another"}`),
	}
	for view, rows := range map[*filter.EventView][][2]string{ // source fields with their values; "-" for none
		&grid: {
			{"id", "7"},
			{"ID", "7"},
			{"Subject", "orders/7"},
			{"eventtype", "Shop.OrderPlaced"},
			{"dataversion", "2.1"},
			{"topic", "/topics/orders"},
			{"eventTime", "2026-01-01T00:00:00Z"},
			{"data.system", "crm"},
			{"Data.system", "crm"},
			{"data.System", "-"},
			{"data.n", "12345678901234567890.50"},
			{"data.e", "1E+2"},
			{"data.yes", "true"},
			{"data.no", "false"},
			{"data.deep.er.est", "x"},
			{"data.null", "-"},
			{"data.list", "-"},
			{"data.object", "-"},
			{"data", "-"},
			{"data.missing", "-"},
			{"source", "-"},
			{"data.lines", "-"},
			{"data.nul", "-"},
			{"data.lone", "-"},
			{"data.del", "-"},
			{"data.tab", "a\tb"},
			{"data.accent", "éé"},
			{"data.blank", "x"},
			{"data.empty", ""},
			{"data.long", "-"},
			{"data.full", strings.Repeat("v", 4096)},
		},
		&cloud: {
			{"id", "7"},
			{"source", "/shop"},
			{"type", "shop.order"},
			{"time", "2026-01-01T00:00:00Z"},
			{"partitionkey", "p1"},
			{"sampled", "5"},
			{"data.system", "crm"},
			{"specversion", "1.0"},
			{"eventType", "-"},
		},
		&custom: {
			{"id", "7"},
			{"subject", "s"},
			{"eventTime", "2026-01-01T00:00:00Z"},
			{"no", "7"},
			{"data.no", "7"},
			{"kind.name", "order"},
			{"data.subject", "another"},
		},
	} {
		for _, row := range rows {
			want := map[string]string{"X-S": "always", "X-D": row[1]}
			if row[1] == "-" {
				delete(want, "X-D")
			}
			list := []attribute{dynamic("X-D", row[0]), static("X-S", "always")}
			require.Equal(t, want, headersOf(list, *view, 0), row[0])
		}
	}
	require.Equal(t, map[string]string{"X-D": "7"},
		headersOf([]attribute{dynamic("X-D", "id"), dynamic("X-E", "subject")}, grid, 4))
	both := headersOf([]attribute{
		dynamic("X-D", "data.system"), dynamic("X-E", "data.system"), dynamic("X-F", "data.deep.er.est"),
	}, grid, 0)
	require.Equal(t, map[string]string{"X-D": "crm", "X-E": "crm", "X-F": "x"}, both, "two headers may have one source")
	require.Nil(t, endpointconf.NewHeaderSet(nil))
}
