package endpointconf_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/endpointconf"
	"postrider/internal/filter"
)

func static(name, value string) endpointconf.DeliveryAttribute {
	return endpointconf.DeliveryAttribute{
		Name: name, Type: endpointconf.AttributeStatic, AttributeProperties: endpointconf.AttributeProperties{Value: &value},
	}
}

func secret(name, value string) endpointconf.DeliveryAttribute {
	a := static(name, value)
	a.IsSecret = true
	return a
}

// withheld is a secret as reads show it.
func withheld(name string) endpointconf.DeliveryAttribute {
	return endpointconf.DeliveryAttribute{
		Name: name, Type: endpointconf.AttributeStatic, AttributeProperties: endpointconf.AttributeProperties{IsSecret: true},
	}
}

func dynamic(name, sourceField string) endpointconf.DeliveryAttribute {
	return endpointconf.DeliveryAttribute{
		Name: name, Type: endpointconf.AttributeDynamic,
		AttributeProperties: endpointconf.AttributeProperties{SourceField: sourceField},
	}
}

// mistakes are "field message", in order.
func mistakes(found []filter.ValidationError) []string {
	list := []string{}
	for _, f := range found {
		list = append(list, f.Field+" "+f.Message)
	}
	return list
}

func TestValidDeliveryAttributes(t *testing.T) {
	t.Parallel()
	for name, list := range map[string][]endpointconf.DeliveryAttribute{
		"none": nil,
		"the page's own": {static("staticproperty1", "somestaticvalue2"), dynamic("dynamicproperty1",
			"data.key1")},
		"an Authorization header":    {secret("Authorization", "BEARER SlAV32hkKG")},
		"a secret that is withheld":  {withheld("x-kept")},
		"User-Agent":                 {static("User-Agent", "shop/1")},
		"every character of a token": {static("!#$%&'*+-.^_`|~09azAZ", "v")},
		"the longest name":           {static(strings.Repeat("n", 256), "v")},
		"the longest value":          {static("X-A", strings.Repeat("v", 4096))},
		"a tab and a space inside":   {static("X-A", "a\tb c")},
		"beyond ASCII":               {static("X-A", "é")},
		"names that begin like ours": {
			static("aeg", "v"), static("contents", "v"), static("webhook", "v"), static("hosts", "v"),
		},
		"ten": {static("a", "v"), static("b", "v"), static("c", "v"), static("d", "v"), static("e", "v"), static("f",
			"v"), static("g", "v"), static("h", "v"), static("i", "v"), static("j", "v")},
	} {
		stored := []endpointconf.DeliveryAttribute{secret("X-Kept", "v")}
		require.Empty(t, endpointconf.HeaderLimits{}.Mistakes(list, stored), name)
	}
}

func TestInvalidDeliveryAttributes(t *testing.T) {
	t.Parallel()
	const own = ": those headers are reserved for postrider and HTTP"
	type attribute = endpointconf.DeliveryAttribute
	of := func(a attribute, change func(*attribute)) []attribute {
		change(&a)
		return []endpointconf.DeliveryAttribute{a}
	}
	for name, row := range map[string]struct {
		list []endpointconf.DeliveryAttribute
		says []string
	}{
		"no name": {[]endpointconf.DeliveryAttribute{static("", "v")}, []string{"[0].name is required"}},
		"a long name": {[]endpointconf.DeliveryAttribute{static(strings.Repeat("n", 257), "v")}, []string{
			"[0].name must be " +
				"1 to 256 characters long, is 257",
		}},
		"a blank name": {[]endpointconf.DeliveryAttribute{static("X A", "v")}, []string{"[0].name must be a header's name: " +
			"letters, digits and !#$%&'*+-.^_`|~"}},
		"a line in a name": {[]endpointconf.DeliveryAttribute{static("X-A\r\nX-B", "v")}, []string{
			"[0].name must be a header's " +
				"name: letters, digits and !#$%&'*+-.^_`|~",
		}},
		"a colon": {[]endpointconf.DeliveryAttribute{static("X-A:", "v")}, []string{"[0].name must be a header's name: " +
			"letters, digits and !#$%&'*+-.^_`|~"}},
		"an umlaut": {
			[]endpointconf.DeliveryAttribute{static("Ä", "v")},
			[]string{"[0].name must be a header's name: letters, " +
				"digits and !#$%&'*+-.^_`|~"},
		},
		"repeated": {
			[]endpointconf.DeliveryAttribute{static("X-A", "v"), static("X-B", "v"), dynamic("x-a", "id")},
			[]string{"[2].name repeats deliveryAttributeMappings[0].name; names are compared without regard to case"},
		},
		"no type": {of(static("X-A", "v"), func(a *endpointconf.DeliveryAttribute) { a.Type = "" }), []string{
			"[0].type must be Static or Dynamic",
		}},
		"lower case": {of(static("X-A", "v"), func(a *endpointconf.DeliveryAttribute) { a.Type = "static" }), []string{
			"[0].type must be Static or Dynamic",
		}},
		"no value": {of(static("X-A", "v"), func(a *endpointconf.DeliveryAttribute) { a.Value = nil }), []string{
			"[0].properties.value is required by a Static header",
		}},
		"an empty value": {
			[]endpointconf.DeliveryAttribute{static("X-A", "")},
			[]string{"[0].properties.value must be 1 to 4096 bytes long, is 0"},
		},
		"a long value": {
			[]endpointconf.DeliveryAttribute{secret("X-A", strings.Repeat("v", 4097))},
			[]string{"[0].properties.value must be 1 to 4096 bytes long, is 4097"},
		},
		"a line break": {
			[]endpointconf.DeliveryAttribute{static("X-A", "v\r\nX-B: w")},
			[]string{"[0].properties.value must be UTF-8 without control characters, which no header can carry"},
		},
		"DEL": {
			[]endpointconf.DeliveryAttribute{static("X-A", "\x7f")},
			[]string{"[0].properties.value must be UTF-8 without control characters, which no header can carry"},
		},
		"not UTF-8": {
			[]endpointconf.DeliveryAttribute{static("X-A", "\xff")},
			[]string{"[0].properties.value must be UTF-8 without control characters, which no header can carry"},
		},
		"a blank at the end": {
			[]endpointconf.DeliveryAttribute{static("X-A", "v ")},
			[]string{"[0].properties.value must not begin or end with a space or tab, which no header can carry"},
		},
		"a source of a Static one": {
			of(static("X-A", "v"), func(a *endpointconf.DeliveryAttribute) { a.SourceField = "id" }),
			[]string{"[0].properties.sourceField must be absent: a Static header has its value in value"},
		},
		"a value of a Dynamic one": {
			of(static("X-A", "v"), func(a *endpointconf.DeliveryAttribute) { a.Type = endpointconf.AttributeDynamic }),
			[]string{"[0].properties.value must be absent: a Dynamic header has its value from sourceField"},
		},
		"a Dynamic secret": {
			of(dynamic("X-A", "id"), func(a *endpointconf.DeliveryAttribute) { a.IsSecret = true }),
			[]string{"[0].properties.isSecret must be absent or false: only a Static header can be a secret"},
		},
		"no source": {[]endpointconf.DeliveryAttribute{dynamic("X-A", "")}, []string{
			"[0].properties.sourceField is required",
		}},
		"an empty one": {[]endpointconf.DeliveryAttribute{dynamic("X-A", "data..a")}, []string{
			"[0].properties.sourceField must " +
				"be names with a dot between them, none of them empty",
		}},
		"a long source": {
			[]endpointconf.DeliveryAttribute{dynamic("X-A", strings.Repeat("k", 513))},
			[]string{"[0].properties.sourceField must be 1 to 512 characters long"},
		},
		"several mistakes": {
			[]endpointconf.DeliveryAttribute{
				static("", ""), dynamic("X-B", ""), withheld("X-A"), withheld("X-C"),
				withheld("X-D"),
			},
			[]string{
				"[0].name is required", "[0].properties.value must be 1 to 4096 bytes long, is 0",
				"[1].properties.sourceField is required",
				"[3].properties.value is required: no value is stored for this header",
				"[4].properties.value is required: no value is stored for this header",
			},
		},
		"eleven": {
			make([]endpointconf.DeliveryAttribute, 11), []string{" must have at most 10 entries, has 11"},
		},
		"Event Grid's own": {[]endpointconf.DeliveryAttribute{static("AEG-Event-Type", "v")}, []string{
			"[0].name must not begin " +
				"with aeg-, content-, proxy-, webhook-" + own,
		}},
	} {
		require.Equal(t, row.says,
			strip(mistakes(endpointconf.HeaderLimits{}.Mistakes(row.list,
				[]endpointconf.DeliveryAttribute{dynamic("X-D", "id"), secret("X-A", "v")}))), name)
	}
}

// strip removes the name of the property.
func strip(list []string) []string {
	for i := range list {
		list[i] = strings.TrimPrefix(list[i], "deliveryAttributeMappings")
	}
	return list
}

func TestReservedHeaders(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Content-Type", "content-length", "Content-Encoding", "Proxy-Authorization", "aeg-anything", "webhook-id",
		"Webhook-Timestamp", "webhook-signature",
		"WebHook-Request-Origin", "Host", "Connection", "Keep-Alive", "TE", "Trailer", "Transfer-Encoding", "Upgrade",
		"Expect", "Date", "Origin",
		"Traceparent", "tracestate", "Accept-Encoding", "HTTP2-Settings",
	} {
		found := endpointconf.HeaderLimits{}.Mistakes([]endpointconf.DeliveryAttribute{static(name, "v")}, nil)
		require.Len(t, found, 1, name)
		require.Equal(t, "deliveryAttributeMappings[0].name", found[0].Field)
		require.Contains(t, found[0].Message, "must not", name)
	}
}

func TestCustomHeaderLimits(t *testing.T) {
	t.Parallel()
	limits := endpointconf.HeaderLimits{MaxHeaders: 1, MaxValueBytes: 2}
	require.Empty(t, limits.Mistakes([]endpointconf.DeliveryAttribute{static("X-A", "vv")}, nil))
	require.Equal(t, []string{"deliveryAttributeMappings must have at most 1 entries, has 2"},
		mistakes(limits.Mistakes(make([]endpointconf.DeliveryAttribute, 2), nil)))
	require.Equal(t, []string{"deliveryAttributeMappings[0].properties.value must be 1 to 2 bytes long, is 3"},
		mistakes(limits.Mistakes([]endpointconf.DeliveryAttribute{static("X-A", "vvv")}, nil)))
}

func TestKeepSecrets(t *testing.T) {
	t.Parallel()
	stored := []endpointconf.DeliveryAttribute{dynamic("X-D", "id"), secret("X-A", "one"), static("X-B", "two")}
	given := []endpointconf.DeliveryAttribute{withheld("x-a"), withheld("X-B"), secret("X-C", "three")}
	kept, err := endpointconf.KeepSecrets(given, stored)
	require.NoError(t, err)
	want := []endpointconf.DeliveryAttribute{secret("x-a", "one"), secret("X-B", "two"), secret("X-C", "three")}
	require.Equal(t, want, kept)
	require.Nil(t, given[0].Value, "what was given is not changed")

	for _, list := range [][]endpointconf.DeliveryAttribute{
		{withheld("X-A"), withheld("X-C")}, {static("X-A", "v"), withheld("X-D")},
	} {
		_, err = endpointconf.KeepSecrets(list, stored)
		var mistake *filter.ValidationError
		require.ErrorAs(t, err, &mistake)
		require.Equal(t, "deliveryAttributeMappings[1].properties.value", mistake.Field)
	}
}

// headersOf are the headers of a set for an event.
func headersOf(list []endpointconf.DeliveryAttribute, view filter.EventView, most int) map[string]string {
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
	for _, row := range []struct {
		view  filter.EventView
		field string
		want  string // "-" for none
	}{
		{grid, "id", "7"},
		{grid, "ID", "7"},
		{grid, "Subject", "orders/7"},
		{grid, "eventtype", "Shop.OrderPlaced"},
		{grid, "dataversion", "2.1"},
		{grid, "topic", "/topics/orders"},
		{grid, "eventTime", "2026-01-01T00:00:00Z"},
		{grid, "data.system", "crm"},
		{grid, "Data.system", "crm"},
		{grid, "data.System", "-"},
		{grid, "data.n", "12345678901234567890.50"},
		{grid, "data.e", "1E+2"},
		{grid, "data.yes", "true"},
		{grid, "data.no", "false"},
		{grid, "data.deep.er.est", "x"},
		{grid, "data.null", "-"},
		{grid, "data.list", "-"},
		{grid, "data.object", "-"},
		{grid, "data", "-"},
		{grid, "data.missing", "-"},
		{grid, "source", "-"},
		{grid, "data.lines", "-"},
		{grid, "data.nul", "-"},
		{grid, "data.lone", "-"},
		{grid, "data.del", "-"},
		{grid, "data.tab", "a\tb"},
		{grid, "data.accent", "éé"},
		{grid, "data.blank", "x"},
		{grid, "data.empty", ""},
		{grid, "data.long", "-"},
		{grid, "data.full", strings.Repeat("v", 4096)},
		{cloud, "id", "7"},
		{cloud, "source", "/shop"},
		{cloud, "type", "shop.order"},
		{cloud, "time", "2026-01-01T00:00:00Z"},
		{cloud, "partitionkey", "p1"},
		{cloud, "sampled", "5"},
		{cloud, "data.system", "crm"},
		{cloud, "specversion", "1.0"},
		{cloud, "eventType", "-"},
		{custom, "id", "7"},
		{custom, "subject", "s"},
		{custom, "eventTime", "2026-01-01T00:00:00Z"},
		{custom, "no", "7"},
		{custom, "data.no", "7"},
		{custom, "kind.name", "order"},
		{custom, "data.subject", "another"},
	} {
		want := map[string]string{"X-S": "always", "X-D": row.want}
		if row.want == "-" {
			delete(want, "X-D")
		}
		require.Equal(t, want,
			headersOf([]endpointconf.DeliveryAttribute{dynamic("X-D", row.field), static("X-S", "always")}, row.view, 0),
			row.field)
	}
	require.Equal(t, map[string]string{"X-D": "7"},
		headersOf([]endpointconf.DeliveryAttribute{dynamic("X-D", "id"), dynamic("X-E", "subject")}, grid, 4))
	both := headersOf(
		[]endpointconf.DeliveryAttribute{dynamic("X-D", "data.system"), dynamic("X-E", "data.system"), dynamic("X-F",
			"data.deep.er.est")}, grid, 0)
	require.Equal(t, map[string]string{"X-D": "crm", "X-E": "crm", "X-F": "x"}, both, "two headers may have one source")
	require.Nil(t, endpointconf.NewHeaderSet(nil))
}
