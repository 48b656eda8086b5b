package testnode

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/policy"
)

// CopyNamed is a policy of one's own with the values of a built-in one.
func CopyNamed(t testing.TB, from, to string) *policy.Policy {
	t.Helper()
	builtin, ok := policy.Builtin(from)
	require.True(t, ok)
	p := builtin.Clone()
	p.Name, p.BuiltIn = to, false
	return &p
}

// PutPolicy stores a retry policy, and says whether it is new.
func (tn *Node) PutPolicy(t testing.TB, p *policy.Policy) (made bool) {
	t.Helper()
	_, made, err := tn.System.Policies.Put(t.Context(), p)
	require.NoError(t, err)
	return made
}
