package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/endpointconf"
	"postrider/server"
)

// put stores an event subscription with these deliveryAttributeMappings.
func (b *bundle) putHeaders(mappings string) response {
	b.t.Helper()
	return b.manage(http.MethodPut, billing,
		`{"endpointUrl":"https://example.com/hook?code=5f0c5f0c","deliveryAttributeMappings":`+mappings+`}`)
}

// revealed are the custom headers with their secrets, as JSON.
func (b *bundle) revealed() string {
	b.t.Helper()
	text, err := json.Marshal(b.manage(http.MethodPost, billing+"/getDeliveryAttributes", "").json(http.StatusOK)["value"])
	require.NoError(b.t, err)
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
	b := setup(t)
	b.topic("orders", "")
	const (
		stored = `[{"name":"X-A","properties":{"isSecret":true,"value":"hush hush"},"type":"Static"},` +
			`{"name":"X-B","properties":{"isSecret":false,"value":"open"},"type":"Static"},{"name":"X-C",` +
			`"properties":{"sourceField":"data.system"},"type":"Dynamic"}]`
		shown = `[{"name":"X-A","properties":{"isSecret":true,"value":null},"type":"Static"},` +
			`{"name":"X-B","properties":{"isSecret":false,"value":"open"},"type":"Static"},{"name":"X-C",` +
			`"properties":{"sourceField":"data.system"},"type":"Dynamic"}]`
	)
	require.Equal(t, shown, shownHeaders(t, b.putHeaders(stored).json(http.StatusCreated)))
	require.Equal(t, shown, shownHeaders(t, b.manage(http.MethodGet, billing, "").json(http.StatusOK)))
	list := b.manage(http.MethodGet, "/v1/topics/orders/subscriptions", "").json(http.StatusOK)["value"].([]any)
	require.Equal(t, shown, shownHeaders(t, list[0].(map[string]any)))
	require.Equal(t, stored, b.revealed())

	require.Equal(t, shown, shownHeaders(t, b.putHeaders(shown).json(http.StatusOK)), "what was read can be put back")
	require.Equal(t, stored, b.revealed())
	renamed := strings.Replace(shown, "X-A", "x-a", 1)
	require.Equal(t, renamed, shownHeaders(t, b.putHeaders(renamed).json(http.StatusOK)),
		"the name's case does not matter")
	require.Equal(t, strings.Replace(stored, "X-A", "x-a", 1), b.revealed())

	for _, none := range []string{"[]", "null"} {
		b.putHeaders(stored)
		require.Equal(t, "[]", shownHeaders(t, b.putHeaders(none).json(http.StatusOK)))
		require.Equal(t, "[]", b.revealed())
	}
	require.Equal(t, []string{"deliveryAttributeMappings[0].properties.value"},
		targets(b.putHeaders(shown).rejected(400, "InvalidRequest")), "it is gone")
}

func TestInvalidCustomHeaders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	static := func(name, value string) string {
		return fmt.Sprintf(`{"name":%q,"type":"Static","properties":{"value":%q}}`, name, value)
	}
	for name, row := range map[string]struct {
		mappings string
		targets  []string
		says     string
	}{
		"no array": {`{}`, []string{"deliveryAttributeMappings"}, "must be an array"},
		"a name of HTTP's own": {
			`[` + static("Content-Type", "v") + `]`,
			[]string{"deliveryAttributeMappings[0].name"},
			"must not begin with aeg-, content-",
		},
		"a header of ours": {`[` + static("X", "v") + `,` + static("traceparent", "v") +
			`]`, []string{"deliveryAttributeMappings[1].name"}, "must not be one of"},
		"two mistakes": {
			`[` + static("X Y", "v") + `,` + static("X", "") + `]`,
			[]string{"deliveryAttributeMappings[0].name", "deliveryAttributeMappings[1].properties.value"},
			"must be a header's name",
		},
		"a line break": {
			`[{"name":"X","type":"Static","properties":{"value":"a\r\nb"}}]`,
			[]string{"deliveryAttributeMappings[0].properties.value"},
			"control characters",
		},
		"a value too long": {`[` + static("X", strings.Repeat("v", 4097)) +
			`]`, []string{"deliveryAttributeMappings[0].properties.value"}, "must be 1 to 4096 bytes long, is 4097"},
		"no type": {
			`[{"name":"X","properties":{"value":"v"}}]`,
			[]string{"deliveryAttributeMappings[0].type"},
			"must be Static or Dynamic",
		},
		"no properties": {
			`[{"name":"X","type":"Static"}]`,
			[]string{"deliveryAttributeMappings[0].properties.value"},
			"is required by a Static header",
		},
		"no sourceField": {
			`[{"name":"X","type":"Dynamic","properties":{"sourceField":null}}]`,
			[]string{"deliveryAttributeMappings[0].properties.sourceField"},
			"is required",
		},
		"an unknown member": {
			`[{"name":"X","type":"Dynamic","properties":{"source":"id"}}]`,
			[]string{"deliveryAttributeMappings[0].properties.source"},
			"is not a member",
		},
		"nothing to keep": {
			`[{"name":"X","type":"Static","properties":{"value":null,"isSecret":true}}]`,
			[]string{"deliveryAttributeMappings[0].properties.value"},
			"no value is stored for this header",
		},
		"a value that is no text": {
			`[{"name":"X","type":"Static","properties":{"value":5}}]`,
			[]string{"deliveryAttributeMappings.properties.value"},
			"must be a string",
		},
		"eleven": {"[" + strings.Repeat(static("X", "v")+",", 10) + static("X", "v") +
			"]", []string{"deliveryAttributeMappings"}, "must have at most 10 entries, has 11"},
	} {
		rejected := b.putHeaders(row.mappings).rejected(400, "InvalidRequest")
		require.Equal(t, row.targets, targets(rejected), name)
		require.Contains(t, rejected.Message, row.says, name)
	}
	require.Zero(t, b.count("SELECT count(*) FROM postrider.event_subscriptions"))
	require.Zero(t, b.count("SELECT count(*) FROM postrider.audit WHERE action = 'subscription_created'"))

	rejected := b.manage(http.MethodPut, billing,
		`{"endpointUrl":"nowhere","maxConcurrentDeliveries":0,"deliveryAttributeMappings":[`+static("X Y", "v")+
			`,{"name":"X","type":"Static","properties":{"isSecret":true}}]}`).rejected(400, "InvalidRequest")
	require.ElementsMatch(t, []string{
		"endpointUrl", "maxConcurrentDeliveries", "deliveryAttributeMappings[0].name",
		"deliveryAttributeMappings[1].properties.value",
	}, targets(rejected), "one response names all mistakes")
	b.manage(http.MethodPut, "/v1/topics/orders/subscriptions/a%00b",
		`{"endpointUrl":"https://example.com","deliveryAttributeMappings":[{"name":"X","type":"Static",`+
			`"properties":{"isSecret":true}}]}`).rejected(400, "InvalidRequest")
}

func TestConfiguredCustomHeaderLimits(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *server.Options) { o.HeaderLimits = endpointconf.HeaderLimits{MaxHeaders: 1, MaxValueBytes: 3} })
	b.topic("orders", "")
	b.putHeaders(`[{"name":"X","type":"Static","properties":{"value":"abc"}}]`).json(http.StatusCreated)
	require.Contains(t,
		b.putHeaders(`[{"name":"X","type":"Static","properties":{"value":"abcd"}}]`).rejected(400, "InvalidRequest").Message,
		"must be 1 to 3 bytes long, is 4")
	require.Contains(t, b.putHeaders(`[{},{}]`).rejected(400, "InvalidRequest").Message,
		"must have at most 1 entries, has 2")
}

func TestReveal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	b.putHeaders(`[{"name":"X-A","type":"Static","properties":{"value":"hush","isSecret":true}}]`).json(http.StatusCreated)
	for path, says := range map[string]string{
		"/getFullUrl": `{"endpointUrl":"https://example.com/hook?code=5f0c5f0c"}`, "/getDeliveryAttributes": `"hush"`,
	} {
		response := b.manage(http.MethodPost, billing+path, "")
		response.json(http.StatusOK)
		require.Contains(t, response.body, says)
		require.Equal(t, "no-store", response.header.Get("Cache-Control"))
		for _, missing := range []string{"/v1/topics/never/subscriptions/billing", "/v1/topics/orders/" +
			"subscriptions/never", "/v1/topics/orders/subscriptions/a%00b"} {
			b.manage(http.MethodPost, missing+path, "").rejected(404, "NotFound")
		}
	}
	require.Equal(t, "no-store", b.manage(http.MethodPost, "/v1/topics/orders/listKeys", "").header.Get("Cache-Control"))
	require.Equal(t, 2,
		b.count("SELECT count(*) FROM postrider.audit WHERE action IN ('endpoint_url_shown', 'delivery_attributes_shown')"),
		"what is not there was not shown")

	// A secret is not shown if the audit cannot record it.
	b.alter("ALTER TABLE postrider_internal.audit ADD CONSTRAINT full_now CHECK (false) NOT VALID")
	for _, path := range []string{
		billing + "/getFullUrl", billing + "/getDeliveryAttributes", "/v1/topics/orders/listKeys",
	} {
		response := b.manage(http.MethodPost, path, "")
		response.rejected(500, "InternalError")
		for _, secret := range []string{"5f0c", "hush", "key1"} {
			require.NotContains(t, response.body, secret)
		}
	}
	b.putHeaders("[]").rejected(500, "InternalError")
	b.alter("ALTER TABLE postrider_internal.audit DROP CONSTRAINT full_now")
	require.Contains(t, b.revealed(), "hush", "nor is anything changed")
}

// alter changes the schema without the server.
func (b *bundle) alter(statement string) {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(), statement)
	require.NoError(b.t, err)
}
