package server_test

import (
	"encoding/json"
	"net/http"
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

func TestAudit(t *testing.T) {
	t.Parallel()
	s := setup(t)
	policyJSON := s.get("/v1/policies/ga-2021").body
	const (
		orders, wide, mine = "/v1/topics/orders", "/v1/topics/wide", "/v1/policies/mine"
		another            = `{"endpointUrl":"https://example.com/hook?code=another0","filter":{"subjectBeginsWith":"a"},` +
			`"retryPolicy":{"maxDeliveryAttempts":3},"deadLetterDestination":{"endpointType":"None"},`
		header   = `"deliveryAttributeMappings":[{"name":"X-A","type":"Static","properties":{"value":%,"isSecret":true}}]}`
		replaced = `subscription_replaced orders/billing {"endpointValidation":"skip","settings":[`
	)
	for _, step := range []struct {
		method, path, body string
		status             int
		want               string // "" = no row
	}{
		{"PUT", orders, "", 201, "topic_created orders/- {}"},
		{"PUT", orders, "", 200, ""},
		{"PUT", wide, `{"kind":"namespace"}`, 201, "topic_created wide/- {}"},
		{
			"PUT", wide, `{"kind":"namespace","eventRetentionInDays":3,"duplicateDetectionWindowInMinutes":60}`, 200,
			`topic_replaced wide/- {"settings":["eventRetentionInDays","duplicateDetectionWindowInMinutes"]}`,
		},
		{"POST", orders + "/listKeys", "", 200, "topic_keys_shown orders/- {}"},
		{"POST", orders + "/regenerateKey", `{"keyName":"key2"}`, 200, `topic_keys_replaced orders/- {"keys":["key2"]}`},
		{"POST", orders + "/regenerateKey", `{"keyName":"key3"}`, 400, ""},
		{
			"PUT", billing, `{"endpointUrl":"https://example.com/hook?code=5f0c5f0c"}`, 201,
			`subscription_created orders/billing {"endpointValidation":"skip","settings":["endpointUrl","endpointValidation"]}`,
		},
		{
			"PUT", billing, another + strings.Replace(header, "%", `"hush"`, 1), 200,
			replaced + `"deadLetterDestination","deliveryAttributeMappings","endpointUrl","filter.subjectBeginsWith",` +
				`"retryPolicy.maxDeliveryAttempts"]}`,
		},
		{"PUT", billing, another + strings.Replace(header, "%", "null", 1), 200, replaced + `]}`},
		{
			"PATCH", billing, `{"expirationTimeUtc":"2099-01-01T00:00:00Z","labels":["a"]}`, 200,
			replaced + `"expirationTimeUtc","labels"]}`,
		},
		{"PATCH", billing, `{"expirationTimeUtc":null,"labels":null}`, 200, replaced + `"expirationTimeUtc","labels"]}`},
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
		{"POST", billing + "/pause", "", 200, "subscription_paused orders/billing {}"},
		{"POST", billing + "/release", "", 409, ""},
		{"POST", billing + "/resume", "", 200, "subscription_resumed orders/billing {}"},
		{"POST", billing + "/release", "", 200, "subscription_released orders/billing {}"},
		{"POST", billing + "/probe", "", 409, ""},
		{"POST", "/topics/orders/api/events", gridEvents("1"), 200, ""},
		{"PUT", mine, policyJSON, 201, `policy_created -/- {"policy":"mine"}`},
		{"PUT", mine, policyJSON, 200, `policy_replaced -/- {"policy":"mine"}`},
		{"PUT", "/v1/policies/ga-2021", policyJSON, 409, ""},
		{"DELETE", mine, "", 204, `policy_deleted -/- {"policy":"mine"}`},
		{"DELETE", mine, "", 404, ""},
		{"DELETE", orders, "", 409, ""},
		{"PUT", billing, another + `"signing":{"enabled":true}}`, 200, replaced + `"deliveryAttributeMappings","signing"]}`},
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
}

// The audit has who skips a validation, who starts one, and who completes one.
func TestAuditOfValidations(t *testing.T) {
	t.Parallel()
	s := setupEngine(t)
	s.topic("orders", "")
	s.audited()
	e := endpoint(t, responses(http.StatusOK))
	link := func(shown map[string]any) string {
		return shown["validation"].(map[string]any)["validationUrl"].(string)
	}
	first := link(s.put(billing, to(e)).json(201))
	require.Contains(t, s.audited()[0], `{"endpointValidation":"required","settings":[`)
	require.Equal(t, link(s.patch(billing, `{"labels":["a"]}`).json(200)), first)
	require.Equal(t, []string{`subscription_replaced orders/billing {"settings":["labels"]}`}, s.audited())
	second := link(s.post(billing+"/validate", "").json(200))
	require.Equal(t, []string{"subscription_validation_requested orders/billing {}"}, s.audited())
	for range 2 {
		s.send(http.MethodGet, strings.TrimPrefix(second, s.url), "").is(200)
	}
	require.Equal(t, []string{"subscription_validated orders/billing {}"}, s.auditedBy("validationUrl"))
	s.patch(billing, `{"endpointValidation":"skip"}`).json(200)
	s.patch(billing, `{"labels":[]}`).json(200)
	require.Equal(t, []string{
		`subscription_replaced orders/billing {"endpointValidation":"skip","settings":["endpointValidation"]}`,
		`subscription_replaced orders/billing {"endpointValidation":"skip","settings":["labels"]}`,
	}, s.audited())
}

// The actions that a list can be filtered by are those that the SQL contract documents.
func TestAuditActions(t *testing.T) {
	t.Parallel()
	var comment string
	require.NoError(t, setup(t).db.QueryRow(t.Context(), `SELECT col_description(attrelid, attnum) FROM pg_attribute
		WHERE attrelid = 'postrider.audit'::regclass AND attname = 'action'`).Scan(&comment))
	require.Equal(t, regexp.MustCompile("[a-z]+(_[a-z]+)+").FindAllString(comment, -1), query.AuditActions)
}
