package catalog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/testnode"
	"postrider/policy"
)

// A retry policy's changes are in the audit by the names that the REST API has for its settings, each cell for itself.
func TestAuditOfPolicies(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	base, ok := policy.Builtin(policy.DefaultName)
	require.True(t, ok)
	p := base.Clone()
	p.Name, p.BuiltIn = "own", false
	tn.PutPolicy(t, &p)
	p.AckTimeout = policy.Seconds(20 * time.Second)
	for i := range p.Cells {
		if p.Cells[i].Condition == "404" {
			p.Cells[i].MinDelay = policy.Seconds(7 * time.Minute)
		}
	}
	was := time.Duration(base.AckTimeout).Seconds()
	tn.PutPolicy(t, &p)
	const changes = "SELECT changes #>> $2::text[] FROM postrider.audit WHERE action = $1 ORDER BY audit_id DESC LIMIT 1"
	for _, row := range []struct {
		path string
		want float64
	}{
		{"{ackTimeoutSeconds,old}", was},
		{"{ackTimeoutSeconds,new}", 20},
		{`{cells.webhook 404,new,minDelaySeconds}`, 420},
	} {
		var value float64
		require.NoError(t,
			tn.Pool.QueryRow(t.Context(), "SELECT ("+changes+")::float8", "policy_replaced", row.path).Scan(&value), row.path)
		require.InDelta(t, row.want, value, 0, row.path)
	}
	const names = "SELECT string_agg(DISTINCT split_part(n, ' ', 1), ' ') " +
		"FROM postrider.audit, jsonb_object_keys(changes) n WHERE action = 'policy_replaced'"
	require.Equal(t, "ackTimeoutSeconds cells.azure-resource cells.webhook", tn.Text(t, names))
	require.NoError(t, tn.System.Policies.Delete(t.Context(), "own"))
	require.Equal(t, 1, tn.Rows(t, "audit",
		"action = 'policy_deleted' AND (changes #>> '{ackTimeoutSeconds,old}')::int = 20"))
}

// What was made or removed of users and personal keys is in the audit with its values.
func TestAuditOfPersonalKeysAndUsers(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	users := tn.System.Access
	newest := func(column, action string) string {
		t.Helper()
		return tn.Text(t,
			"SELECT "+column+"::text FROM postrider.audit WHERE action = '"+action+"' ORDER BY audit_id DESC LIMIT 1")
	}
	tn.NewUser(t, "anna", access.RoleOperator)
	for _, role := range []access.Role{access.RoleViewer, ""} {
		_, k := tn.NewPersonalKey(t, "anna", role)
		require.JSONEq(t, fmt.Sprintf(`{"scope": {"old": null, "new": %q}, "owner": {"old": null, "new": "anna"},
			"machine": {"old": null, "new": %q}, "expiresAt": {"old": null, "new": %q}, "state": {"old": null,`+
			` "new": "active"}, "query": {"old": null, "new": %t}}`,
			k.Scope, *k.Machine, k.ExpiresAt.UTC().Format(time.RFC3339), role == ""),
			newest("changes", "api_key_created"))
	}
	require.NoError(t, users.DeleteUser(t.Context(), "anna"))
	require.JSONEq(t, `{"role": {"old": "operator", "new": null}, "disabled": {"old": false, "new": null}}`,
		newest("changes", "user_deleted"))
	require.JSONEq(t, `{"user": "anna", "sessions": 0, "keys": 2}`, newest("details", "user_deleted"))
}
