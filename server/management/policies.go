package management

import (
	"context"
	"errors"
	"net/http"

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
func (m *Handlers) GetPolicy(ctx context.Context, r *PolicyPath) (*api.Tagged[Policy], error) {
	p, version, err := m.policyVersion(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, policyNotFound(r.Name)
	}
	return new(taggedPolicy(p, version)), nil
}

func taggedPolicy(p *policy.Policy, version postgres.Version) api.Tagged[Policy] {
	return api.Tagged[Policy]{ETag: api.ETagOf(version), Body: new(DescribePolicy(p, version))}
}

// PutPolicyRequest is the request PUT /v1/policies/{policy}.
type PutPolicyRequest struct {
	PolicyPath
	api.PutHeaders
	Body Policy
}

// PutPolicy responds to PUT /v1/policies/{policy}.
func (m *Handlers) PutPolicy(ctx context.Context, r *PutPolicyRequest) (*api.Put[Policy], error) {
	when, err := r.Conditions()
	if err != nil {
		return nil, err
	}
	if _, builtIn := policy.Builtin(r.Name); builtIn {
		return nil, builtInError(r.Name)
	}
	p, err := r.Body.policy(r.Name)
	if err != nil {
		return nil, err
	}
	version, created, err := m.Parts.Policies.Put(ctx, p, when...)
	if err != nil {
		return nil, r.Rejected(policyError(p.Name, "batching must stay true: ", err), "retry policy", r.Name)
	}
	return &api.Put[Policy]{Tagged: taggedPolicy(p, version), Created: created}, nil
}

// DeletePolicyRequest is the request DELETE /v1/policies/{policy}.
type DeletePolicyRequest struct {
	PolicyPath
	api.IfMatchHeader
}

// DeletePolicy responds to DELETE /v1/policies/{policy}.
func (m *Handlers) DeletePolicy(ctx context.Context, r *DeletePolicyRequest) (*api.NoContent, error) {
	when, err := r.Conditions()
	if err != nil {
		return nil, err
	}
	if !api.Storable(r.Name) {
		return nil, policyNotFound(r.Name)
	}
	err = m.Parts.Policies.Delete(ctx, r.Name, when...)
	return &api.NoContent{}, r.Rejected(policyError(r.Name, "", err), "retry policy", r.Name)
}

// policyNames are those of all policies, the built-in ones first.
func (m *Handlers) policyNames() []string {
	var names []string
	for _, p := range m.Parts.Cache.Snapshot().Policies() {
		names = append(names, p.Name)
	}
	return names
}

// policyVersion finds a retry policy with its version; nil if there is none. Before that it reloads the catalog:
// another node may have stored the policy a moment ago.
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

func policyNotFound(name string) error {
	return api.Refuse(http.StatusNotFound, api.CodeNotFound, "retry policy %q does not exist", api.Shorten(name))
}

func builtInError(name string) error {
	return api.RejectConflict(api.ConflictCodePolicyBuiltIn,
		"retry policy %q is built in and never changes: copy it under another name", name)
}

// policyError is the response to an error of the catalog. used precedes the event subscriptions that use the policy.
func policyError(name, used string, err error) error {
	var inUse *catalog.PolicyInUseError
	switch {
	case errors.As(err, &inUse):
		return api.RejectConflict(api.ConflictCodePolicyInUse, "%s%s", used, inUse.Error())
	case errors.Is(err, catalog.ErrBuiltIn):
		return builtInError(name)
	case errors.Is(err, postgres.ErrNotFound):
		return policyNotFound(name)
	default:
		return err
	}
}
