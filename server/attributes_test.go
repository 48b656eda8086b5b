package server_test

import (
	"encoding/json"
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
	const stored = `[{"name":"X-A","properties":{"isSecret":true,"value":"hush hush"},"type":"Static"},` +
		`{"name":"X-B","properties":{"isSecret":false,"value":"open"},"type":"Static"},{"name":"X-C",` +
		`"properties":{"sourceField":"data.system"},"type":"Dynamic"}]`
	shown := strings.Replace(stored, `"hush hush"`, "null", 1)
	require.Equal(t, shown, shownHeaders(t, s.putHeaders(stored).json(201)))
	require.Equal(t, shown, shownHeaders(t, s.get(billing).json(200)))
	list := s.get("/v1/topics/orders/subscriptions").json(200)["value"].([]any)
	require.Equal(t, shown, shownHeaders(t, list[0].(map[string]any)))
	require.Equal(t, stored, s.revealed())
	renamed := strings.Replace(shown, "X-A", "x-a", 1)
	require.Equal(t, renamed, shownHeaders(t, s.putHeaders(renamed).json(200)), "what was read can be put back")
	require.Equal(t, strings.Replace(stored, "X-A", "x-a", 1), s.revealed())
	for _, none := range []string{"[]", "null"} {
		s.putHeaders(stored)
		require.Equal(t, "[]", shownHeaders(t, s.putHeaders(none).json(200)))
		require.Equal(t, "[]", s.revealed())
	}
	require.Equal(t, []string{"deliveryAttributeMappings[0].properties.value"},
		targets(s.putHeaders(shown).rejected(400, "InvalidRequest")), "it is gone")

	// An operator can set the limits of custom headers and filters.
	s = s.with(func(o *server.Options) {
		o.HeaderLimits, o.FilterLimits = endpointconf.HeaderLimits{MaxHeaders: 1}, filter.Limits{MaxFilters: 1}
	})
	const is = `{"operatorType":"IsNotNull","key":"id"}`
	for _, setting := range []string{
		`"deliveryAttributeMappings":[{},{}]`, `"filter":{"advancedFilters":[` + is + `,` + is + `]}`,
	} {
		rejected := s.put(billing, `{"endpointUrl":"https://example.com",`+setting+`}`).rejected(400, "InvalidRequest")
		require.Contains(t, rejected.Message, "must have at most 1 entries, has 2", setting)
	}
}

// What an operation shows of secrets is in the audit first. internal/catalog has the order of both.
func TestReveal(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	s.putHeaders(`[{"name":"X-A","type":"Static","properties":{"value":"hush","isSecret":true}}]`).json(201)
	require.Contains(t, s.post(billing+"/getFullUrl", "").is(200).body,
		`{"endpointUrl":"https://example.com/hook?code=5f0c5f0c"}`)
	require.Contains(t, s.revealed(), `"hush"`)
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
}
