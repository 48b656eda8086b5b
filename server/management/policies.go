package management

import (
	"context"
	"errors"

	"postrider/catalog"
	"postrider/policy"
	"postrider/postgres"
	"postrider/server/api"
)

// PolicyPath names a retry policy.
type PolicyPath struct {
	Name string `path:"policy" example:"ga-2021"`
}

// ListPolicies responds to GET /v1/policies.
func (m *Handlers) ListPolicies(context.Context, *struct{}) (*api.List[Policy], error) {
	snapshot := m.Parts.Cache.Snapshot()
	list := &api.List[Policy]{Value: []Policy{}}
	for _, p := range snapshot.Policies() {
		list.Value = append(list.Value, DescribePolicy(p, snapshot.PolicyVersion(p.Name)))
	}
	return list, nil
}

// GetPolicy responds to GET /v1/policies/{policy}.
func (m *Handlers) GetPolicy(ctx context.Context, r *PolicyPath) (*Policy, error) {
	p, version, err := m.policyVersion(ctx, r.Name)
	if err == nil && p == nil {
		err = postgres.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return new(DescribePolicy(p, version)), nil
}

// PutPolicyRequest is the request PUT /v1/policies/{policy}.
type PutPolicyRequest struct {
	PolicyPath
	api.PutHeaders
	Body Policy
}

// PutPolicy responds to PUT /v1/policies/{policy}.
func (m *Handlers) PutPolicy(ctx context.Context, r *PutPolicyRequest) (*api.Put[Policy], error) {
	if _, builtIn := policy.Builtin(r.Name); builtIn {
		return nil, builtInError(r.Name)
	}
	p, err := r.Body.policy(r.Name)
	if err != nil {
		return nil, err
	}
	version, created, err := m.Parts.Policies.Put(ctx, p, r.Conditions()...)
	if err != nil {
		return nil, r.Rejected(policyError(p.Name, "batching must stay true: ", err), "retry policy", r.Name)
	}
	return &api.Put[Policy]{Body: new(DescribePolicy(p, version)), Created: created}, nil
}

// DeletePolicyRequest is the request DELETE /v1/policies/{policy}.
type DeletePolicyRequest struct {
	PolicyPath
	api.IfMatchHeader
}

// DeletePolicy responds to DELETE /v1/policies/{policy}.
func (m *Handlers) DeletePolicy(ctx context.Context, r *DeletePolicyRequest) (*api.NoContent, error) {
	err := m.Parts.Policies.Delete(ctx, r.Name, r.Conditions()...)
	return &api.NoContent{}, r.Rejected(policyError(r.Name, "", err), "retry policy", r.Name)
}

// policyVersion finds a retry policy and its version; nil if there is none. It reloads the catalog before it returns
// nil: another node may have stored the policy just now.
func (m *Handlers) policyVersion(ctx context.Context, name string) (*policy.Policy, postgres.Version, error) {
	snapshot := m.Parts.Cache.Snapshot()
	if _, ok := snapshot.Policy(name); !ok {
		if err := m.Parts.Cache.Reload(ctx); err != nil {
			return nil, 0, err
		}
		snapshot = m.Parts.Cache.Snapshot()
	}
	p, _ := snapshot.Policy(name)
	return p, snapshot.PolicyVersion(name), nil
}

func builtInError(name string) error {
	return api.RejectConflict(api.ConflictCodePolicyBuiltIn,
		"retry policy %q is built in and never changes: copy it under another name", name)
}

// policyError is the response to an error of the catalog. used begins the message about a policy in use.
func policyError(name, used string, err error) error {
	var inUse *catalog.PolicyInUseError
	switch {
	case errors.As(err, &inUse):
		return api.RejectConflict(api.ConflictCodePolicyInUse, "%s%s", used, inUse.Error())
	case errors.Is(err, catalog.ErrBuiltIn):
		return builtInError(name)
	default:
		return err
	}
}
