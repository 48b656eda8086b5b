package server

import (
	"context"
	"net/http"
	"time"

	"postrider/policy"
)

// ListPolicies answers GET /v1/policies.
func (m *management) ListPolicies(context.Context, ListPoliciesRequestObject) (ListPoliciesResponseObject, error) {
	answer := ListPolicies200JSONResponse{Value: []Policy{}}
	for _, p := range m.store.Catalogue().Policies() {
		answer.Value = append(answer.Value, DescribePolicy(p))
	}
	return answer, nil
}

// GetPolicy answers GET /v1/policies/{policy}.
func (m *management) GetPolicy(ctx context.Context, r GetPolicyRequestObject) (GetPolicyResponseObject, error) {
	p, err := m.policy(ctx, r.Policy)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, refuse(http.StatusNotFound, codeNotFound, "retry policy %q does not exist", shorten(r.Policy))
	}
	return GetPolicy200JSONResponse(DescribePolicy(p)), nil
}

// policyNames are those of all policies, the built-in ones first.
func (m *management) policyNames() []string {
	var names []string
	for _, p := range m.store.Catalogue().Policies() {
		names = append(names, p.Name)
	}
	return names
}

// policy finds a retry policy, nil if there is none. It looks again before it says no: another node may have made it a
// moment ago.
func (m *management) policy(ctx context.Context, name string) (*policy.Policy, error) {
	if p, ok := m.store.Catalogue().Policy(name); ok {
		return p, nil
	}
	if err := m.store.Reload(ctx); err != nil {
		return nil, err
	}
	p, _ := m.store.Catalogue().Policy(name)
	return p, nil
}

// DescribePolicy is the policy as the REST API and `policy show -o json` write it.
func DescribePolicy(p *policy.Policy) Policy {
	shown := Policy{
		Name: p.Name, BuiltIn: p.BuiltIn, IsDefault: p.Name == policy.DefaultName, Source: p.Source,
		AckTimeoutInSeconds: seconds(p.AckTimeout), Basis: PolicyBasis(p.Basis), TailInSeconds: seconds(p.Tail), StepsInSeconds: []float64{},
		MaxDeliveryAttempts:      Range{Default: limitOf(p.DefaultMaxAttempts), Least: p.MinMaxAttempts, Most: p.MaxMaxAttempts},
		EventTimeToLiveInMinutes: Range{Default: limitOf(minutes(p.DefaultTTL)), Least: minutes(p.MinTTL), Most: minutes(p.MaxTTL)},
		StatusTable:              []StatusCell{},
	}
	for _, step := range p.Steps {
		shown.StepsInSeconds = append(shown.StepsInSeconds, seconds(step))
	}
	for _, c := range p.Cells {
		shown.StatusTable = append(shown.StatusTable, StatusCell{
			EndpointKind: EndpointKind(c.EndpointKind), Condition: c.Condition, Action: StatusCellAction(c.Action), MinDelayInSeconds: seconds(c.MinDelay),
		})
	}
	return shown
}

// limitOf reads package policy's 0, which means no limit.
func limitOf(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

func minutes(d time.Duration) int { return int(d / time.Minute) }

func seconds(d time.Duration) float64 { return d.Seconds() }
