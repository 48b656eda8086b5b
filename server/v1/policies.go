package v1

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"postrider/internal/catalog"
	"postrider/internal/catalog/spec"
	"postrider/internal/postgres"
	"postrider/policy"
	"postrider/server/api"
)

// PolicyPath names a retry policy.
type PolicyPath struct {
	Name string `path:"policy" example:"ga-2021"`
}

// ListPolicies lists retry policies.
//
// Lists all retry policies on one page: the built-in ones from the oldest behavior on, then your own by name.
func (m *Handlers) ListPolicies(context.Context, *struct{}) (*api.List[Policy], error) {
	snapshot := m.Parts.Cache.Snapshot()
	list := &api.List[Policy]{Value: []Policy{}}
	for _, p := range snapshot.Policies() {
		list.Value = append(list.Value, DescribePolicy(p, snapshot.PolicyVersion(p.Name)))
	}
	return list, nil
}

// GetPolicy reads a retry policy.
//
// Returns a retry policy with its status table. To copy it, PUT the response under another name.
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

type putPolicyRequest struct {
	PolicyPath
	api.PutHeaders
	Body Policy
}

// PutPolicy creates or replaces a retry policy.
//
// Creates or replaces your own retry policy. It accepts the response of a GET: `name`, `builtIn`, `isDefault` and
// `etag` are ignored. Absent settings take their defaults, also when a policy is replaced.
//
// Event subscriptions use the policy from the next decision on, on every node within a second. Their limits are kept
// within its ranges.
//
// The response is 409 for a built-in policy. `batching` must stay true while event subscriptions use batches (409).
func (m *Handlers) PutPolicy(ctx context.Context, r *putPolicyRequest) (*api.Put[Policy], error) {
	if _, builtIn := policy.Builtin(r.Name); builtIn {
		return nil, builtInError(r.Name)
	}
	p, err := r.Body.settings(r.Name)
	if err != nil {
		return nil, err
	}
	version, created, err := m.Parts.Policies.Put(ctx, p, r.Conditions()...)
	if err != nil {
		return nil, r.Rejected(policyError(p.Name, "batching must stay true: ", err), "retry policy", r.Name)
	}
	return &api.Put[Policy]{Body: new(DescribePolicy(p, version)), Created: created}, nil
}

type deletePolicyRequest struct {
	PolicyPath
	api.IfMatchHeader
}

// DeletePolicy deletes a retry policy.
//
// Deletes your own retry policy. The response is 409 for a built-in policy, and while event subscriptions use it; the
// message names them.
func (m *Handlers) DeletePolicy(ctx context.Context, r *deletePolicyRequest) (*api.NoContent, error) {
	err := m.Parts.Policies.Delete(ctx, r.Name, r.Conditions()...)
	return &api.NoContent{}, r.Rejected(policyError(r.Name, "", err), "retry policy", r.Name)
}

// policyVersion finds a retry policy and its version; nil if there is none. It reloads the catalog before it returns
// nil: another node may have stored the policy just now.
func (m *Handlers) policyVersion(ctx context.Context, name string) (*policy.Policy, postgres.Version, error) {
	if p := m.declaredPolicies[name]; p != nil {
		return p, 0, nil
	}
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

// Policy is a retry policy.
//
// PUT ignores Name, BuiltIn, IsDefault and ETag.
type Policy struct {
	policy.Policy
	// Event subscriptions without a policy use it.
	IsDefault bool `json:"isDefault"`
	// Version of its settings, for If-Match.
	ETag *string `json:"etag,omitempty"`

	given []byte // the JSON that it was read from
}

// UnmarshalJSON reads the body of a PUT. Absent settings have their defaults.
func (p *Policy) UnmarshalJSON(text []byte) error {
	var shown struct {
		IsDefault bool    `json:"isDefault"`
		ETag      *string `json:"etag"`
	}
	p.given = bytes.Clone(text)
	return cmp.Or(json.Unmarshal(text, &p.Policy), json.Unmarshal(text, &shown))
}

// DescribePolicy shows a retry policy with all settings. Version 0 omits the etag.
func DescribePolicy(p *policy.Policy, version postgres.Version) Policy {
	shown := Policy{Policy: p.Clone(), IsDefault: p.Name == policy.DefaultName}
	shown.SortCells()
	if version != 0 {
		shown.ETag = new(api.ETagOf(version))
	}
	return shown
}

// ReadPolicy reads a policy from the body of PUT /v1/policies/{policy}. Its error has all mistakes, one a line.
func ReadPolicy(name string, body []byte) (*policy.Policy, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, errNoObject
	}
	var read Policy
	if err := api.DecodeStrictly(body, &read); err != nil {
		return nil, inLines(err)
	}
	p, err := read.settings(name)
	return p, inLines(err)
}

var errNoObject = errors.New("the body must be a JSON object")

// inLines is an error with all mistakes, one a line.
func inLines(err error) error {
	var rejected *api.RejectionError
	if !errors.As(err, &rejected) || len(rejected.Details) == 0 {
		return err
	}
	lines := make([]string, len(rejected.Details))
	for i, detail := range rejected.Details {
		lines[i] = detail.Message
	}
	return errors.New(strings.Join(lines, "\n"))
}

// settings checks the policy, and gives it its name. An empty body is a policy of defaults.
func (p *Policy) settings(name string) (*policy.Policy, error) {
	if p.given == nil {
		if err := p.UnmarshalJSON([]byte("{}")); err != nil {
			return nil, err
		}
	}
	p.Name, p.BuiltIn = name, false
	var found problems
	found.validation(p.Mistakes())
	found.table(spec.Policy, json.RawMessage(p.given))
	return &p.Policy, found.Err()
}
