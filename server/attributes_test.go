package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/endpointconf"
	"postrider/internal/filter"
	"postrider/server"
)

// putHeaders stores an event subscription with these deliveryAttributeMappings.
func (s *service) putHeaders(mappings string) response {
	s.t.Helper()
	return s.put(billing, `{"endpointUrl":"https://example.com/hook?code=5f0c5f0c",`+
		`"deliveryAttributeMappings":`+mappings+`}`)
}

// revealed are the custom headers with their secrets, as JSON.
func (s *service) revealed() string {
	s.t.Helper()
	text, err := json.Marshal(s.post(billing+"/getDeliveryAttributes", "").json(200)["value"])
	require.NoError(s.t, err)
	return string(text)
}

func shownHeaders(t *testing.T, subscription map[string]any) string {
	t.Helper()
	text, err := json.Marshal(subscription["deliveryAttributeMappings"])
	require.NoError(t, err)
	return string(text)
}

func TestCustomHeadersShowNoSecret(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	const (
		stored = `[{"name":"X-A","properties":{"isSecret":true,"value":"hush hush"},"type":"Static"},` +
			`{"name":"X-B","properties":{"isSecret":false,"value":"open"},"type":"Static"},{"name":"X-C",` +
			`"properties":{"sourceField":"data.system"},"type":"Dynamic"}]`
		shown = `[{"name":"X-A","properties":{"isSecret":true,"value":null},"type":"Static"},` +
			`{"name":"X-B","properties":{"isSecret":false,"value":"open"},"type":"Static"},{"name":"X-C",` +
			`"properties":{"sourceField":"data.system"},"type":"Dynamic"}]`
	)
	require.Equal(t, shown, shownHeaders(t, s.putHeaders(stored).json(201)))
	require.Equal(t, shown, shownHeaders(t, s.get(billing).json(200)))
	list := s.get("/v1/topics/orders/subscriptions").json(200)["value"].([]any)
	require.Equal(t, shown, shownHeaders(t, list[0].(map[string]any)))
	require.Equal(t, stored, s.revealed())

	require.Equal(t, shown, shownHeaders(t, s.putHeaders(shown).json(200)), "what was read can be put back")
	require.Equal(t, stored, s.revealed())
	renamed := strings.Replace(shown, "X-A", "x-a", 1)
	require.Equal(t, renamed, shownHeaders(t, s.putHeaders(renamed).json(200)), "the name's case does not matter")
	require.Equal(t, strings.Replace(stored, "X-A", "x-a", 1), s.revealed())

	for _, none := range []string{"[]", "null"} {
		s.putHeaders(stored)
		require.Equal(t, "[]", shownHeaders(t, s.putHeaders(none).json(200)))
		require.Equal(t, "[]", s.revealed())
	}
	require.Equal(t, []string{"deliveryAttributeMappings[0].properties.value"},
		targets(s.putHeaders(shown).rejected(400, "InvalidRequest")), "it is gone")
}

func TestInvalidCustomHeaders(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	static := func(name, value string) string {
		return fmt.Sprintf(`{"name":%q,"type":"Static","properties":{"value":%q}}`, name, value)
	}
	const at = "deliveryAttributeMappings"
	for mappings, row := range map[string]struct {
		targets []string
		says    string
	}{
		`{}`: {[]string{at}, "must be an array"},
		`[` + static("X Y", "v") + `,` + static("X", "") + `]`: {
			[]string{at + "[0].name", at + "[1].properties.value"}, "must be a header's name",
		},
		`[` + static("X", "v") + `,` + static("traceparent", "v") + `]`: {[]string{at + "[1].name"}, "must not be one of"},
		`[{"name":"X","type":"Static","properties":{"value":"a\r\nb"}}]`: {
			[]string{at + "[0].properties.value"}, "control characters",
		},
		`[{"name":"X","properties":{"value":"v"}}]`: {[]string{at + "[0].type"}, "must be Static or Dynamic"},
		`[{"name":"X","type":"Static"}]`: {
			[]string{at + "[0].properties.value"}, "is required by a Static header",
		},
		`[{"name":"X","type":"Dynamic","properties":{"sourceField":null}}]`: {
			[]string{at + "[0].properties.sourceField"}, "is required",
		},
		`[{"name":"X","type":"Dynamic","properties":{"source":"id"}}]`: {
			[]string{at + "[0].properties.source"}, "is not a member",
		},
		`[{"name":"X","type":"Static","properties":{"value":null,"isSecret":true}}]`: {
			[]string{at + "[0].properties.value"}, "no value is stored for this header",
		},
		`[{"name":"X","type":"Static","properties":{"value":5}}]`: {[]string{at + ".properties.value"}, "must be a string"},
	} {
		rejected := s.putHeaders(mappings).rejected(400, "InvalidRequest")
		require.Equal(t, row.targets, targets(rejected), mappings)
		require.Contains(t, rejected.Message, row.says, mappings)
	}
	rejected := s.put(billing, `{"endpointUrl":"nowhere","maxConcurrentDeliveries":0,"deliveryAttributeMappings":[`+
		static("X Y", "v")+`,{"name":"X","type":"Static","properties":{"isSecret":true}}]}`).rejected(400, "InvalidRequest")
	require.ElementsMatch(t, []string{
		"endpointUrl", "maxConcurrentDeliveries", at + "[0].name", at + "[1].properties.value",
	}, targets(rejected), "one response names all mistakes")
	s.put("/v1/topics/orders/subscriptions/a%00b", `{"endpointUrl":"https://example.com","deliveryAttributeMappings":[`+
		`{"name":"X","type":"Static","properties":{"isSecret":true}}]}`).rejected(400, "InvalidRequest")
	require.Zero(t, s.count("SELECT count(*) FROM postrider.event_subscriptions"))
	require.Zero(t, s.count("SELECT count(*) FROM postrider.audit WHERE action = 'subscription_created'"))
}

// An operator can set the limits of custom headers and filters.
func TestConfiguredLimits(t *testing.T) {
	t.Parallel()
	s := setup(t, func(o *server.Options) {
		o.HeaderLimits = endpointconf.HeaderLimits{MaxHeaders: 1, MaxValueBytes: 3}
		o.FilterLimits = filter.Limits{MaxFilters: 1, MaxValues: 2, MaxStringLength: 3}
	})
	s.topic("orders", "")
	const header, is = `{"name":"X","type":"Static","properties":{"value":"%s"}}`, `{"operatorType":"IsNotNull",` +
		`"key":"id"}`
	for setting, says := range map[string]string{
		`"deliveryAttributeMappings":[` + fmt.Sprintf(header, "abcd") + `]`: "must be 1 to 3 bytes long, is 4",
		`"deliveryAttributeMappings":[{},{}]`:                               "must have at most 1 entries, has 2",
		`"filter":{"advancedFilters":[` + is + `,` + is + `]}`:              "must have at most 1 entries, has 2",
		`"filter":{"advancedFilters":[{"operatorType":"NumberIn","key":"a","values":[1,2,3]}]}`: "must have at most 2 " +
			"values " +
			"in all filters together, has 3",
		`"filter":{"advancedFilters":[{"operatorType":"StringIn","key":"a","values":["four"]}]}`: "must be at most 3 " +
			"characters long, is 4",
	} {
		rejected := s.put(billing, `{"endpointUrl":"https://example.com",`+setting+`}`).rejected(400, "InvalidRequest")
		require.Contains(t, rejected.Message, says, setting)
	}
	s.putHeaders(`[` + fmt.Sprintf(header, "abc") + `]`).json(201)
}

// What an operation shows of secrets is in the audit first.
func TestReveal(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	s.putHeaders(`[{"name":"X-A","type":"Static","properties":{"value":"hush","isSecret":true}}]`).json(201)
	for path, says := range map[string]string{
		"/getFullUrl": `{"endpointUrl":"https://example.com/hook?code=5f0c5f0c"}`, "/getDeliveryAttributes": `"hush"`,
	} {
		require.Contains(t, s.post(billing+path, "").is(200).body, says)
		for _, missing := range []string{"never/subscriptions/x", "orders/subscriptions/x", "orders/subscriptions/a%00b"} {
			s.post("/v1/topics/"+missing+path, "").rejected(404, "NotFound")
		}
	}
	require.Equal(t, 2,
		s.count("SELECT count(*) FROM postrider.audit WHERE action IN ('endpoint_url_shown', 'delivery_attributes_shown')"),
		"what is not there was not shown")
	s.rows("ALTER TABLE postrider_internal.audit ADD CONSTRAINT full_now CHECK (false) NOT VALID")
	for _, path := range []string{
		billing + "/getFullUrl", billing + "/getDeliveryAttributes", "/v1/topics/orders/listKeys",
	} {
		response := s.post(path, "")
		response.rejected(500, "InternalError")
		for _, secret := range []string{"5f0c", "hush", "key1"} {
			require.NotContains(t, response.body, secret)
		}
	}
	s.putHeaders("[]").rejected(500, "InternalError")
	s.rows("ALTER TABLE postrider_internal.audit DROP CONSTRAINT full_now")
	require.Contains(t, s.revealed(), "hush", "nor is anything changed")
}
