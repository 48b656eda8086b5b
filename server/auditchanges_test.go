package server_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each change of the configuration is in the audit with its old and its new values, by SQL and by REST, and without a
// secret.
func TestTheAuditHasOldAndNewValues(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const newest = "SELECT coalesce(changes::text, 'NULL') FROM postrider.audit WHERE action = $1 " +
		"ORDER BY audit_id DESC LIMIT 1"
	settings := func(endpoint, secret, labels string) string {
		return `{"endpointUrl":"` + endpoint + `","labels":[` + labels + `],"deliveryAttributeMappings":[{"name":"X-Open",` +
			`"type":"Static","properties":{"value":"seen"}},{"name":"X-Key","type":"Static","properties":{"value":"` + secret +
			`","isSecret":true}}]}`
	}
	const anna = `{"role":"%","password":"correct horse battery staple %"}`
	for _, step := range []struct{ method, path, body, action, changes string }{
		{
			"PUT", "/v1/topics/wide", `{"kind":"namespace","eventRetentionInDays":2}`, "topic_created",
			`{"kind": {"old": null, "new": "namespace"}, "eventRetentionInDays": {"old": null, "new": 2}, ` +
				`"inputSchema": {"old": null, "new": "CloudEventSchemaV1_0"}}`,
		},
		{
			"PUT", "/v1/topics/wide", `{"kind":"namespace","eventRetentionInDays":3}`, "topic_replaced",
			`{"eventRetentionInDays": {"old": 2, "new": 3}}`,
		},
		{"PUT", "/v1/topics/orders", "", "", ""},
		{"PUT", billing, settings("https://example.com/a?code=secret-one-1", "secret-two-2", ""), "", ""},
		{
			"PUT", billing, settings("https://example.com/a?code=secret-three-3", "secret-four-4", `"a"`),
			"subscription_replaced", `{"labels": {"old": null, "new": ["a"]}, "endpointUrl": {"changed": true},` +
				` "deliveryAttributeMappings": {"changed": true}}`,
		},
		{
			"PUT", billing, settings("https://example.com/b?code=secret-three-3", "secret-four-4", `"a"`),
			"subscription_replaced", `{"endpointUrl": {"old": "https://example.com/a", "new": "https://example.com/b"}}`,
		},
		{
			"POST", "/v1/topics/orders/regenerateKey", `{"keyName":"key1"}`, "topic_keys_replaced",
			`{"key1": {"changed": true}}`,
		},
		{"PUT", "/v1/users/anna", strings.NewReplacer("%", "viewer").Replace(anna), "", ""},
		{
			"PUT", "/v1/users/anna", strings.NewReplacer("%", "operator").Replace(anna), "user_replaced",
			`{"role": {"old": "viewer", "new": "operator"}, "password": {"changed": true}}`,
		},
	} {
		r := s.manage(step.method, step.path, step.body)
		require.Less(t, r.status, 300, "%s: %s", step.path, r.body)
		if step.changes != "" {
			var shown string
			require.NoError(t, s.db.QueryRow(t.Context(), newest, step.action).Scan(&shown))
			require.JSONEq(t, step.changes, shown, step.body)
		}
	}
	s.delete(billing).is(204)
	var deleted, all string
	require.NoError(t, s.db.QueryRow(t.Context(), newest, "subscription_deleted").Scan(&deleted))
	require.Contains(t, deleted, `"labels": {"new": null, "old": ["a"]}`)
	require.NoError(t, s.db.QueryRow(t.Context(), "SELECT string_agg(a::text, ' ') FROM postrider.audit a").Scan(&all))
	require.NotContains(t, all, "secret-")
	require.NotContains(t, all, "battery")
	require.Contains(t, s.get("/v1/audit?action=user_replaced").body, `"role":{"new":"operator","old":"viewer"}`)
}
