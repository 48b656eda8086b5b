package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
)

// personalKey is what a user creates on the account page.
func (b *bundle) personalKey(user, role string) (key string) {
	b.t.Helper()
	spec := access.PersonalKeySpec{Machine: "laptop", Role: access.Role(role), Days: 1}
	ctx := access.WithActor(b.t.Context(), access.Actor{Name: "admin", Address: "127.0.0.1"})
	key, _, err := b.store.Access.CreatePersonalKey(ctx, user, spec)
	require.NoError(b.t, err)
	return key
}

// A personal key is its owner's in every operation and in the audit.
func TestPersonalKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	b.subscription("orders", "billing", `{"endpointUrl":"https://example.com"}`)
	b.manage("PUT", "/v1/users/anna", `{"role":"operator","password":"correct horse battery"}`).json(201)
	key := b.personalKey("anna", "operator")
	as := func(method, path, body string) response {
		return b.send(method, path, body, "Authorization", "Bearer "+key)
	}
	b.audited()
	require.Equal(t, 200, as("POST", "/v1/topics/orders/subscriptions/billing/pause", "{}").status)
	require.Len(t, b.auditedBy("user:anna"), 1)
	as("PUT", "/v1/topics/bills", "").rejected(403, "Forbidden")
	published := b.publish("orders", key, eventNamed("1")).rejected(403, "Forbidden")
	require.Contains(t, published.Message, "publishing needs scope publish, or admin")
	b.manage("PUT", "/v1/users/anna", `{"role":"viewer"}`).json(200)
	as("POST", "/v1/topics/orders/subscriptions/billing/resume", "{}").rejected(403, "Forbidden")
	me := as("GET", "/v1/me", "").json(200)
	require.Equal(t, []any{"user:anna", "viewer"}, []any{me["name"], me["role"]})
	require.NotNil(t, me["expiresAt"])
	listed := b.manage("GET", "/v1/apiKeys/"+me["apiKey"].(string), "").json(200)
	require.Equal(t, []any{"anna", "laptop"}, []any{listed["owner"], listed["machine"]})
	require.NotContains(t, listed, "key")
	b.manage("PUT", "/v1/users/anna", `{"role":"viewer","disabled":true}`).json(200)
	as("GET", "/v1/me", "").rejected(401, "Unauthorized")
}
