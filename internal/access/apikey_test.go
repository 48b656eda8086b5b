package access_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
)

func newAPIKey(t *testing.T, tn *testnode.Node, spec access.APIKeySpec) (string, *access.APIKey) {
	t.Helper()
	key, made, err := tn.System.Access.CreateAPIKey(
		access.WithActor(t.Context(), access.Actor{Name: "user:anna", Address: "192.0.2.7"}), spec)
	require.NoError(t, err)
	return key, made
}

func TestAPIKeys(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	users := tn.System.Access
	tn.Topic(t, "orders")
	auditedOf(t, tn)
	key, made := newAPIKey(t, tn,
		access.APIKeySpec{Name: "shop", Scope: access.ScopePublish, Topic: "orders", ExpiresInDays: new(1)})
	require.Regexp(t, `^prk_[A-Za-z0-9_-]{43}$`, key)
	require.True(t, access.IsAPIKey(key))
	require.Equal(t, key[:12], made.Hint)
	require.Equal(t, "user:anna", made.CreatedBy)
	require.Equal(t, "active", made.State)
	require.Equal(t, 24*time.Hour, made.ExpiresAt.Sub(made.CreatedAt))
	found, err := users.APIKeyOf(t.Context(), key)
	require.NoError(t, err)
	require.True(t, found.Publishes("orders"))
	require.False(t, found.Publishes("bills"))
	require.Equal(t, access.Actor{Name: "key:shop", Address: "192.0.2.8"}, found.Actor("192.0.2.8"))
	for _, wrong := range []string{"", key + "x", key[:46], "prk_", "PRK_" + key[4:]} {
		require.ErrorIs(t, testnode.ErrorOf(users.APIKeyOf(t.Context(), wrong)), access.ErrWrongCredentials, wrong)
	}

	for scope, role := range map[access.Scope]access.Role{
		access.ScopePublish: "", access.ScopeReceive: "", access.ScopeRead: access.RoleViewer,
		access.ScopeOperate: access.RoleOperator, access.ScopeAdmin: access.RoleAdmin,
	} {
		key, _ := newAPIKey(t, tn, access.APIKeySpec{Name: "every-" + string(scope), Scope: scope})
		found, err := elsewhere(tn).APIKeyOf(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, role, found.Scope.Role())
		require.Equal(t, scope == access.ScopePublish || scope == access.ScopeAdmin, found.Publishes("orders"), scope)
		require.Equal(t, scope == access.ScopeReceive || scope == access.ScopeAdmin, found.Receives("orders", "a"), scope)
	}
	list, err := users.APIKeys(t.Context(), "every-publish", 2)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, "every-read", list[0].Name)
	require.Equal(t, "every-receive", list[1].Name)
	require.NotNil(t, list[1].LastUsedAt)

	revoked, err := users.RevokeAPIKey(t.Context(), "shop")
	require.NoError(t, err)
	require.Equal(t, "revoked", revoked.State)
	again, err := users.RevokeAPIKey(t.Context(), "shop")
	require.NoError(t, err)
	require.Equal(t, revoked, again)
	require.ErrorIs(t, testnode.ErrorOf(users.APIKeyOf(t.Context(), key)), access.ErrWrongCredentials)
	require.ErrorIs(t, testnode.ErrorOf(users.RevokeAPIKey(t.Context(), "never")), postgres.ErrNotFound)
	require.ErrorIs(t, testnode.ErrorOf(users.APIKey(t.Context(), "never")), postgres.ErrNotFound)
	shown, err := users.APIKey(t.Context(), "shop")
	require.NoError(t, err)
	require.Equal(t, revoked, shown)
	rows := auditedOf(t, tn)
	require.Contains(t, rows[0],
		`user:anna 192.0.2.7 api_key_created orders {"key": "shop", "scope": "publish", "expiresAt": "20`)
	require.Equal(t, `postrider - api_key_revoked orders {"key": "shop"}`, rows[len(rows)-1])
	require.Len(t, rows, 7)
}

// A key of scope receive can be limited to a topic, and to one of its event subscriptions.
func TestAPIKeysOfConsumers(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Subscribe(t, "orders", "billing", nil)
	one, made := newAPIKey(t, tn,
		access.APIKeySpec{Name: "one", Scope: access.ScopeReceive, Topic: "orders", Subscription: "billing"})
	require.Equal(t, "billing", *made.Subscription)
	require.Equal(t, 1, tn.Rows(t, "audit",
		"action = 'api_key_created' AND topic = 'orders' AND subscription = 'billing'"))
	all, _ := newAPIKey(t, tn, access.APIKeySpec{Name: "all", Scope: access.ScopeReceive, Topic: "orders"})
	for _, row := range []struct {
		key, topic, subscription string
		receives                 bool
	}{
		{one, "orders", "billing", true},
		{one, "orders", "stock", false},
		{one, "bills", "billing", false},
		{all, "orders", "stock", true},
		{all, "bills", "billing", false},
	} {
		key, err := tn.System.Access.APIKeyOf(t.Context(), row.key)
		require.NoError(t, err)
		require.Equal(t, row.receives, key.Receives(row.topic, row.subscription), row)
		require.False(t, key.Publishes("orders"))
	}
}

func TestAPIKeyRejections(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	newAPIKey(t, tn, access.APIKeySpec{Name: "ci", Scope: access.ScopeRead})
	_, err := tn.System.Access.RevokeAPIKey(t.Context(), "ci")
	require.NoError(t, err)
	for kind, wrong := range map[error]map[string][]access.APIKeySpec{
		postgres.ErrInvalid: {
			"name":  {{Scope: access.ScopeRead}, {Name: "a b", Scope: access.ScopeRead}},
			"scope": {{Name: "cd", Scope: "root"}, {Name: "cd"}},
			"topic": {{Name: "cd", Scope: access.ScopeRead, Topic: "orders"}},
			"query": {{Name: "cd", Scope: access.ScopeReceive, Query: new(true)}},
			"subscription": {
				{Name: "cd", Scope: access.ScopeReceive, Subscription: "billing"},
				{Name: "cd", Scope: access.ScopePublish, Topic: "orders", Subscription: "billing"},
			},
			"expiresInDays": {
				{Name: "cd", Scope: access.ScopeRead, ExpiresInDays: new(0)},
				{Name: "cd", Scope: access.ScopeRead, ExpiresInDays: new(3651)},
			},
		},
		postgres.ErrNotFound: {
			"topic": {
				{Name: "cd", Scope: access.ScopePublish, Topic: "bills"}, {Name: "cd", Scope: access.ScopeReceive, Topic: "bills"},
			},
			"subscription": {{Name: "cd", Scope: access.ScopeReceive, Topic: "orders", Subscription: "never"}},
		},
		postgres.ErrConflict: {"name": {{Name: "ci", Scope: access.ScopeRead}}},
	} {
		for field, specs := range wrong {
			for _, spec := range specs {
				_, _, err := tn.System.Access.CreateAPIKey(t.Context(), spec)
				requireRejected(t, err, kind, field)
			}
		}
	}
	require.Equal(t, 1, tn.Rows(t, "api_keys", ""))
}

// requireRejected requires a rejection of a kind that names the field.
func requireRejected(t *testing.T, err, kind error, field string) {
	t.Helper()
	var rejected *postgres.FunctionError
	require.ErrorAs(t, err, &rejected)
	require.ErrorIs(t, err, kind)
	require.Equal(t, field, rejected.Field)
}

// What was revoked on one node, or has expired, works nowhere a second later.
func TestAPIKeysEndEverywhere(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	far := elsewhere(tn)
	revoked, _ := newAPIKey(t, tn, access.APIKeySpec{Name: "revoked", Scope: access.ScopeRead})
	expired, _ := newAPIKey(t, tn, access.APIKeySpec{Name: "expired", Scope: access.ScopeRead, ExpiresInDays: new(1)})
	for _, key := range []string{revoked, expired} {
		require.NoError(t, testnode.ErrorOf(far.APIKeyOf(t.Context(), key)))
	}
	_, err := tn.System.Access.RevokeAPIKey(t.Context(), "revoked")
	require.NoError(t, err)
	tn.Exec(t, "UPDATE postrider_internal.api_keys SET expires_at = now() WHERE name = 'expired'")
	ended := time.Now()
	for _, key := range []string{revoked, expired} {
		testnode.Within(t, "the key ends", func() bool {
			began := time.Now()
			_, err := far.APIKeyOf(t.Context(), key)
			require.True(t, err != nil || began.Sub(ended) < time.Second, "it still works after %s", began.Sub(ended))
			return err != nil
		})
	}
	require.Equal(t, 1, tn.Rows(t, "api_keys", "state = 'expired'"))
}
