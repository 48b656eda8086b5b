package server_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"postrider/internal/query"

	"github.com/stretchr/testify/require"
)

// audited returns the rows since the last call, as "action topic/subscription detail", without times.
func (s *service) audited() []string { return s.auditedBy("admin") }

func (s *service) auditedBy(by string) []string {
	s.t.Helper()
	list := []string{}
	for _, row := range s.rows(`WITH gone AS (DELETE FROM postrider_internal.audit RETURNING *)
		SELECT action, coalesce(topic, '-') || '/' || coalesce(subscription, '-') AS about, details, actor, address FROM gone
		ORDER BY id`) {
		require.Equal(s.t, by, row["actor"])
		require.Equal(s.t, "127.0.0.1", row["address"])
		detail, err := json.Marshal(row["details"])
		require.NoError(s.t, err)
		text := row["action"].(string) + " " + row["about"].(string) + " " + string(detail)
		list = append(list, regexp.MustCompile(`"20\d\d-[^"]*Z"`).ReplaceAllString(text, `"…"`))
	}
	return list
}

// Each change is in the audit once; what changes nothing is not. The actions that a list can be filtered by are those
// that the SQL contract documents.
func TestAudit(t *testing.T) {
	t.Parallel()
	s := setup(t)
	policyJSON := s.get("/v1/policies/ga-2021").body
	const (
		orders, mine = "/v1/topics/orders", "/v1/policies/mine"
		another      = `{"endpointUrl":"https://example.com/hook?code=another0","filter":{"subjectBeginsWith":"a"},` +
			`"deliveryAttributeMappings":[{"name":"X-A","type":"Static","properties":{"value":%,"isSecret":true}}]}`
		replaced = `subscription_replaced orders/billing {"endpointValidation":"skip","settings":[`
	)
	for _, step := range []struct {
		method, path, body string
		status             int
		want               string // "" = no row
	}{
		{"PUT", orders, "", 201, "topic_created orders/- {}"},
		{"PUT", orders, "", 200, ""},
		{
			"PUT", orders, `{"duplicateDetectionWindowInMinutes":60}`, 200,
			`topic_replaced orders/- {"settings":["duplicateDetectionWindowInMinutes"]}`,
		},
		{"POST", orders + "/listKeys", "", 200, "topic_keys_shown orders/- {}"},
		{"POST", orders + "/regenerateKey", `{"keyName":"key2"}`, 200, `topic_keys_replaced orders/- {"keys":["key2"]}`},
		{
			"PUT", billing, `{"endpointUrl":"https://example.com/hook?code=5f0c5f0c"}`, 201,
			`subscription_created orders/billing {"endpointValidation":"skip","settings":["endpointUrl","endpointValidation"]}`,
		},
		{
			"PUT", billing, strings.Replace(another, "%", `"hush"`, 1), 200,
			replaced + `"deliveryAttributeMappings","endpointUrl","filter.subjectBeginsWith"]}`,
		},
		{"PUT", billing, strings.Replace(another, "%", "null", 1), 200, replaced + `]}`},
		{
			"PATCH", billing, `{"expirationTimeUtc":"2099-01-01T00:00:00Z","labels":["a"]}`, 200,
			replaced + `"expirationTimeUtc","labels"]}`,
		},
		{"PUT", billing, `{"endpointUrl":"nowhere"}`, 400, ""},
		{"GET", billing, "", 200, ""},
		{"POST", billing + "/getFullUrl", "", 200, "endpoint_url_shown orders/billing {}"},
		{"POST", billing + "/getDeliveryAttributes", "", 200, "delivery_attributes_shown orders/billing {}"},
		{"POST", billing + "/getSigningSecrets", "", 200, "signing_secrets_shown orders/billing {}"},
		{"POST", billing + "/rotateSigningSecret", "", 409, ""},
		{
			"POST", billing + "/pause", `{"stopTimeToLive":true}`, 200,
			`subscription_paused orders/billing {"stopTimeToLive":true}`,
		},
		{"POST", billing + "/release", "", 409, ""},
		{"POST", billing + "/resume", "", 200, "subscription_resumed orders/billing {}"},
		{"POST", billing + "/release", "", 200, "subscription_released orders/billing {}"},
		{"POST", billing + "/probe", "", 409, ""},
		{"POST", "/topics/orders/api/events", gridEvents("1"), 200, ""},
		{"PUT", mine, policyJSON, 201, `policy_created -/- {"policy":"mine"}`},
		{"PUT", mine, policyJSON, 200, `policy_replaced -/- {"policy":"mine"}`},
		{"DELETE", mine, "", 204, `policy_deleted -/- {"policy":"mine"}`},
		{"PATCH", billing, `{"signing":{"enabled":true}}`, 200, replaced + `"signing"]}`},
		{"POST", billing + "/rotateSigningSecret", "", 200, "signing_secret_rotated orders/billing {}"},
		{"DELETE", billing, "", 204, "subscription_deleted orders/billing {}"},
		{"DELETE", billing, "", 404, ""},
		{"DELETE", orders, "", 204, "topic_deleted orders/- {}"},
	} {
		response := s.manage(step.method, step.path, step.body)
		require.Equal(t, step.status, response.status, "%s %s: %s", step.method, step.path, response.body)
		require.Equal(t, step.want, strings.Join(s.audited(), "\n"), "%s %s", step.method, step.path)
	}
	s.topic("spare", "")
	s.subscription("spare", "billing", `{"endpointUrl":"https://example.com/hook"}`)
	s.probation("spare", "billing")
	s.audited()
	s.post("/v1/topics/spare/subscriptions/billing/probe", "").json(200)
	require.Equal(t, []string{"subscription_probed spare/billing {}"}, s.audited())

	comment := s.tn.Text(t, `SELECT col_description(attrelid, attnum) FROM pg_attribute
		WHERE attrelid = 'postrider.audit'::regclass AND attname = 'action'`)
	require.Equal(t, regexp.MustCompile("[a-z]+(_[a-z]+)+").FindAllString(comment, -1), query.AuditActions)
}

// Each change of the configuration is in the audit with its old and its new values, by SQL and by REST, and without a
// secret.
func TestAuditHasOldAndNewValues(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const newest = "SELECT coalesce(changes::text, 'NULL') FROM postrider.audit WHERE action = $1 " +
		"ORDER BY audit_id DESC LIMIT 1"
	settings := func(endpoint, secret, labels string) string {
		return `{"endpointUrl":"` + endpoint + `","labels":[` + labels + `],"deliveryAttributeMappings":[{"name":"X-Open",` +
			`"type":"Static","properties":{"value":"seen"}},{"name":"X-Key","type":"Static","properties":{"value":"` + secret +
			`","isSecret":true}}]}`
	}
	for _, step := range []struct{ method, path, body, action, changes string }{
		{
			"PUT", "/v1/topics/wide", `{"kind":"namespace","eventRetentionInDays":2}`, "topic_created",
			`{"kind": {"old": null, "new": "namespace"}, "eventRetentionInDays": {"old": null, "new": 2}, ` +
				`"relay": {"old": null, "new": "none"}, ` +
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
		{"PUT", "/v1/users/anna", `{"role":"viewer","password":"correct horse battery staple"}`, "", ""},
		{
			"PUT", "/v1/users/anna", `{"role":"operator","password":"correct horse battery stable"}`, "user_replaced",
			`{"role": {"old": "viewer", "new": "operator"}, "password": {"changed": true}}`,
		},
	} {
		r := s.manage(step.method, step.path, step.body)
		require.Less(t, r.status, 300, "%s: %s", step.path, r.body)
		if step.changes != "" {
			require.JSONEq(t, step.changes, s.tn.Text(t, newest, step.action), step.body)
		}
	}
	s.delete(billing).is(204)
	require.Contains(t, s.tn.Text(t, newest, "subscription_deleted"), `"labels": {"new": null, "old": ["a"]}`)
	all := s.tn.Text(t, "SELECT string_agg(a::text, ' ') FROM postrider.audit a")
	require.NotContains(t, all, "secret-")
	require.NotContains(t, all, "battery")
	require.Contains(t, s.get("/v1/audit?action=user_replaced").body, `"role":{"new":"operator","old":"viewer"}`)
}
