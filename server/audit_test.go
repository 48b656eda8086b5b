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

// audited returns the rows since the last call, as "action topic/subscription detail".
func (b *bundle) audited() []string { return b.auditedBy("admin") }

func (b *bundle) auditedBy(by string) []string {
	b.t.Helper()
	list := []string{}
	for _, row := range b.rows(`WITH gone AS (DELETE FROM postrider_internal.audit RETURNING *)
		SELECT action, coalesce(topic, '-') || '/' || coalesce(subscription, '-') AS about, details, actor, address FROM gone
		ORDER BY id`) {
		require.Equal(b.t, by, row["actor"])
		require.Equal(b.t, "127.0.0.1", row["address"])
		detail, err := json.Marshal(row["details"])
		require.NoError(b.t, err)
		list = append(list, row["action"].(string)+" "+row["about"].(string)+" "+string(detail))
	}
	return list
}

func TestAudit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	policyJSON := b.manage(http.MethodGet, "/v1/policies/ga-2021", "").body
	for _, step := range []struct {
		method, path, body string
		status             int
		want               []string
	}{
		{"PUT", "/v1/topics/orders", "", 201, []string{"topic_created orders/- {}"}},
		{"PUT", "/v1/topics/orders", "", 200, []string{}},
		{"PUT", "/v1/topics/wide", `{"kind":"namespace"}`, 201, []string{"topic_created wide/- {}"}},
		{"PUT", "/v1/topics/wide", `{"kind":"namespace","eventRetentionInDays":2}`, 200, []string{`topic_replaced wide/- ` +
			`{"settings":["eventRetentionInDays"]}`}},
		{"PUT", "/v1/topics/wide", `{"kind":"namespace","eventRetentionInDays":2}`, 200, []string{}},
		{
			"PUT", "/v1/topics/wide", `{"kind":"namespace","eventRetentionInDays":3,"duplicateDetectionWindowInMinutes":60}`,
			200,
			[]string{`topic_replaced wide/- {"settings":["eventRetentionInDays","duplicateDetectionWindowInMinutes"]}`},
		},
		{"POST", "/v1/topics/orders/listKeys", "", 200, []string{"topic_keys_shown orders/- {}"}},
		{"POST", "/v1/topics/orders/regenerateKey", `{"keyName":"key2"}`, 200, []string{`topic_keys_replaced orders/- ` +
			`{"keys":["key2"]}`}},
		{"POST", "/v1/topics/orders/regenerateKey", `{"keyName":"key3"}`, 400, []string{}},
		{
			"PUT", billing, `{"endpointUrl":"https://example.com/hook?code=5f0c5f0c"}`, 201,
			[]string{
				`subscription_created orders/billing {"endpointValidation":"skip","settings":["endpointUrl","endpointValidation"]}`,
			},
		},
		{
			"PUT", billing, `{"endpointUrl":"https://example.com/hook?code=another0","filter":{"subjectBeginsWith":"a",` +
				`"includedEventTypes":[]},"retryPolicy":{"maxDeliveryAttempts":3},
				"deadLetterDestination":{"endpointType":"None"},"deliveryAttributeMappings":[{"name":"X-A","type":"Static",` +
				`"properties":{"value":"hush","isSecret":true}}]}`, 200,
			[]string{
				`subscription_replaced orders/billing {"endpointValidation":"skip","settings":["deadLetterDestination",` +
					`"deliveryAttributeMappings","endpointUrl","filter.subjectBeginsWith","retryPolicy.maxDeliveryAttempts"]}`,
			},
		},
		{
			"PUT", billing, `{"endpointUrl":"https://example.com/hook?code=another0","filter":{"subjectBeginsWith":"a"},` +
				`"retryPolicy":{"maxDeliveryAttempts":3},
				"deadLetterDestination":{"endpointType":"None"},"deliveryAttributeMappings":[{"name":"X-A","type":"Static",` +
				`"properties":{"value":null,"isSecret":true}}]}`, 200,
			[]string{`subscription_replaced orders/billing {"endpointValidation":"skip","settings":[]}`},
		},
		{"PATCH", billing, `{"expirationTimeUtc":"2099-01-01T00:00:00Z","labels":["a"]}`, 200, []string{
			`subscription_replaced orders/billing {"endpointValidation":"skip","settings":["expirationTimeUtc","labels"]}`,
		}},
		{"PATCH", billing, `{"expirationTimeUtc":null,"labels":null}`, 200, []string{`subscription_replaced orders/billing ` +
			`{"endpointValidation":"skip","settings":["expirationTimeUtc","labels"]}`}},
		{"PUT", billing, `{"endpointUrl":"nowhere"}`, 400, []string{}},
		{"GET", billing, "", 200, []string{}},
		{"POST", billing + "/getFullUrl", "", 200, []string{"endpoint_url_shown orders/billing {}"}},
		{"POST", billing + "/getDeliveryAttributes", "", 200, []string{"delivery_attributes_shown orders/billing {}"}},
		{"POST", billing + "/getSigningSecrets", "", 200, []string{"signing_secrets_shown orders/billing {}"}},
		{"POST", billing + "/rotateSigningSecret", "", 409, []string{}},
		{"POST", billing + "/pause", `{"stopTimeToLive":true}`, 200, []string{`subscription_paused orders/billing ` +
			`{"stopTimeToLive":true}`}},
		{"POST", billing + "/pause", "", 200, []string{"subscription_paused orders/billing {}"}},
		{"POST", billing + "/release", "", 409, []string{}},
		{"POST", billing + "/resume", "", 200, []string{"subscription_resumed orders/billing {}"}},
		{"POST", billing + "/release", "", 200, []string{"subscription_released orders/billing {}"}},
		{"POST", billing + "/probe", "", 409, []string{}},
		{"PUT", "/v1/policies/mine", policyJSON, 201, []string{`policy_created -/- {"policy":"mine"}`}},
		{"PUT", "/v1/policies/mine", policyJSON, 200, []string{`policy_replaced -/- {"policy":"mine"}`}},
		{"PUT", "/v1/policies/ga-2021", policyJSON, 409, []string{}},
		{"DELETE", "/v1/policies/mine", "", 204, []string{`policy_deleted -/- {"policy":"mine"}`}},
		{"DELETE", "/v1/policies/mine", "", 404, []string{}},
		{"DELETE", "/v1/topics/orders", "", 409, []string{}},
		{
			"PUT", billing, `{"endpointUrl":"https://example.com/hook?code=another0","filter":{"subjectBeginsWith":"a"},` +
				`"retryPolicy":{"maxDeliveryAttempts":3},
				"deadLetterDestination":{"endpointType":"None"},"signing":{"enabled":true}}`, 200,
			[]string{`subscription_replaced orders/billing {"endpointValidation":"skip",` +
				`"settings":["deliveryAttributeMappings","signing"]}`},
		},
		{"POST", billing + "/rotateSigningSecret", "", 200, []string{"signing_secret_rotated orders/billing {}"}},
		{"DELETE", billing, "", 204, []string{"subscription_deleted orders/billing {}"}},
		{"DELETE", billing, "", 404, []string{}},
		{"DELETE", "/v1/topics/orders", "", 204, []string{"topic_deleted orders/- {}"}},
	} {
		response := b.manage(step.method, step.path, step.body)
		require.Equal(t, step.status, response.status, "%s %s: %s", step.method, step.path, response.body)
		require.Equal(t, step.want, b.audited(), "%s %s", step.method, step.path)
	}
}

func TestAuditOfProbes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	b.subscription("orders", "billing", `{"endpointUrl":"https://example.com/hook"}`)
	b.probation("orders", "billing")
	b.audited()
	b.manage(http.MethodPost, billing+"/probe", "").json(http.StatusOK)
	require.Equal(t, []string{"subscription_probed orders/billing {}"}, b.audited())
	b.manage(http.MethodPost, billing+"/release", "").json(http.StatusOK)
	require.Equal(t, []string{"subscription_released orders/billing {}"}, b.audited())
}

// The audit has changes of the configuration, and no publishes.
func TestPublishingIsNotAudited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.topic("orders", "")
	b.audited()
	require.Equal(t, http.StatusOK, b.publish("orders", key, "["+gridEvent("1")+"]").status)
	require.Empty(t, b.audited())
}

// The audit has who skips a validation, who starts one, and who completes one.
func TestAuditOfValidations(t *testing.T) {
	t.Parallel()
	b := setupEngine(t)
	b.topic("orders", "")
	b.audited()
	e := endpoint(t, responses(http.StatusOK))
	link := func(shown map[string]any) string {
		return shown["validation"].(map[string]any)["validationUrl"].(string)
	}
	first := link(b.manage(http.MethodPut, billing, to(e)).json(http.StatusCreated))
	require.Contains(t, b.audited()[0], `{"endpointValidation":"required","settings":[`)
	require.Equal(t, link(b.manage(http.MethodPatch, billing, `{"labels":["a"]}`).json(http.StatusOK)), first)
	require.Equal(t, []string{`subscription_replaced orders/billing {"settings":["labels"]}`}, b.audited())
	second := link(b.manage(http.MethodPost, billing+"/validate", "").json(http.StatusOK))
	require.Equal(t, []string{"subscription_validation_requested orders/billing {}"}, b.audited())
	for range 2 {
		require.Equal(t, http.StatusOK, b.send(http.MethodGet, strings.TrimPrefix(second, b.url), "").status)
	}
	require.Equal(t, []string{"subscription_validated orders/billing {}"}, b.auditedBy("validationUrl"))
	b.manage(http.MethodPatch, billing, `{"endpointValidation":"skip"}`).json(http.StatusOK)
	b.manage(http.MethodPatch, billing, `{"labels":[]}`).json(http.StatusOK)
	require.Equal(t, []string{
		`subscription_replaced orders/billing {"endpointValidation":"skip","settings":["endpointValidation"]}`,
		`subscription_replaced orders/billing {"endpointValidation":"skip","settings":["labels"]}`,
	}, b.audited())
}

// The actions that a list can be filtered by are those that the SQL contract documents.
func TestAuditActions(t *testing.T) {
	t.Parallel()
	var comment string
	require.NoError(t, setup(t).db.QueryRow(t.Context(), `SELECT col_description(attrelid, attnum) FROM pg_attribute
		WHERE attrelid = 'postrider.audit'::regclass AND attname = 'action'`).Scan(&comment))
	require.Equal(t, regexp.MustCompile("[a-z]+(_[a-z]+)+").FindAllString(comment, -1), query.AuditActions)
}
