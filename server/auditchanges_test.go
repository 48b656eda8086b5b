package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each change of the configuration is in the audit with its old and its new values, by SQL and by REST, and without a
// secret.
func TestTheAuditHasOldAndNewValues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	billing := "/v1/topics/orders/subscriptions/billing"
	put := func(path, body string) {
		t.Helper()
		r := b.manage("PUT", path, body)
		require.Less(t, r.status, 300, "%s: %s", path, r.body)
	}
	newest := func(action string) (shown string) {
		t.Helper()
		const query = "SELECT coalesce(changes::text, 'NULL') FROM postrider.audit WHERE action = $1 " +
			"ORDER BY audit_id DESC LIMIT 1"
		require.NoError(t, b.db.QueryRow(t.Context(), query, action).Scan(&shown))
		return shown
	}

	put("/v1/topics/wide", `{"kind":"namespace","eventRetentionInDays":2}`)
	require.Contains(t, newest("topic_created"), `"eventRetentionInDays": {"new": 2, "old": null}`)
	put("/v1/topics/wide", `{"kind":"namespace","eventRetentionInDays":3}`)
	require.JSONEq(t, `{"eventRetentionInDays": {"old": 2, "new": 3}}`, newest("topic_replaced"))

	put("/v1/topics/orders", `{}`)
	const attributes = `"deliveryAttributeMappings":[{"name":"X-Open","type":"Static","properties":{"value":"seen"}},` +
		`{"name":"X-Key","type":"Static","properties":{"value":"%","isSecret":true}}]`
	settings := func(endpoint, secret, labels string) string {
		return `{"endpointUrl":"` + endpoint + `","endpointValidation":"skip","labels":[` + labels + `],` +
			strings.ReplaceAll(attributes, "%", secret) + `}`
	}
	put(billing, settings("https://example.com/a?code=secret-one-1", "secret-two-2", ""))
	put(billing, settings("https://example.com/a?code=secret-three-3", "secret-four-4", `"a"`))
	require.JSONEq(t, `{"labels": {"old": null, "new": ["a"]}, "endpointUrl": {"changed": true},`+
		` "deliveryAttributeMappings": {"changed": true}}`,
		newest("subscription_replaced"), "the values of secrets are not shown")
	put(billing, settings("https://example.com/b?code=secret-three-3", "secret-four-4", `"a"`))
	require.JSONEq(t, `{"endpointUrl": {"old": "https://example.com/a", "new": "https://example.com/b"}}`,
		newest("subscription_replaced"))

	require.Equal(t, 200, b.manage("POST", "/v1/topics/orders/regenerateKey", `{"keyName":"key1"}`).status)
	require.JSONEq(t, `{"key1": {"changed": true}}`, newest("topic_keys_replaced"))
	put("/v1/users/anna", `{"role":"viewer","password":"correct horse battery staple 1"}`)
	put("/v1/users/anna", `{"role":"operator","password":"correct horse battery staple 2"}`)
	require.JSONEq(t, `{"role": {"old": "viewer", "new": "operator"}, "password": {"changed": true}}`,
		newest("user_replaced"))

	require.Equal(t, 204, b.manage("DELETE", billing, "").status)
	require.Contains(t, newest("subscription_deleted"), `"labels": {"new": null, "old": ["a"]}`)
	var all string
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT string_agg(a::text, ' ') FROM postrider.audit a").Scan(&all))
	require.NotContains(t, all, "secret-")
	require.NotContains(t, all, "battery")

	var page struct {
		Value []struct {
			Action  string
			Changes map[string]json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal([]byte(b.manage("GET", "/v1/audit?action=user_replaced", "").body), &page))
	require.JSONEq(t, `{"old": "viewer", "new": "operator"}`, string(page.Value[0].Changes["role"]))
}
