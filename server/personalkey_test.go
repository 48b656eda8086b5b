package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
)

// personalKey is what a user creates on the account page.
func (s *service) personalKey(user, role string) (key string) {
	s.t.Helper()
	spec := access.PersonalKeySpec{Machine: "laptop", Role: access.Role(role), Days: 1}
	ctx := access.WithActor(s.t.Context(), access.Actor{Name: "admin", Address: "127.0.0.1"})
	key, _, err := s.store.Access.CreatePersonalKey(ctx, user, spec)
	require.NoError(s.t, err)
	return key
}

// A personal key is its owner's in every operation and in the audit.
func TestPersonalKey(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	s.put("/v1/users/anna", `{"role":"operator","password":"correct horse battery"}`).json(201)
	key := s.personalKey("anna", "operator")
	as := func(method, path, body string) response {
		return s.send(method, path, body, "Authorization", "Bearer "+key)
	}
	s.audited()
	require.Equal(t, 200, as("POST", billing+"/pause", "{}").status)
	require.Len(t, s.auditedBy("user:anna"), 1)
	as("PUT", "/v1/topics/bills", "").rejected(403, "Forbidden")
	published := s.publish("orders", key, gridEvents("1")).rejected(403, "Forbidden")
	require.Contains(t, published.Message, "publishing needs scope publish, or admin")
	s.put("/v1/users/anna", `{"role":"viewer"}`).json(200)
	as("POST", billing+"/resume", "{}").rejected(403, "Forbidden")
	me := as("GET", "/v1/me", "").json(200)
	require.Equal(t, []any{"user:anna", "viewer"}, []any{me["name"], me["role"]})
	require.NotNil(t, me["expiresAt"])
	listed := s.get("/v1/apiKeys/" + me["apiKey"].(string)).json(200)
	require.Equal(t, []any{"anna", "laptop"}, []any{listed["owner"], listed["machine"]})
	require.NotContains(t, listed, "key")
	s.put("/v1/users/anna", `{"role":"viewer","disabled":true}`).json(200)
	as("GET", "/v1/me", "").rejected(401, "Unauthorized")
}
