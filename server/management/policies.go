package management

import (
	"cmp"
	"context"
	"slices"
	"time"

	"postrider/policy"
	"postrider/server/api"
)

// ListPolicies answers GET /v1/policies.
func (m *Handlers) ListPolicies(
	context.Context, api.ListPoliciesRequestObject,
) (api.ListPoliciesResponseObject, error) {
	answer := api.ListPolicies200JSONResponse{Value: []api.Policy{}}
	catalogue := m.Parts.Cache.Snapshot()
	for _, p := range catalogue.Policies() {
		answer.Value = append(answer.Value, DescribePolicy(p, catalogue.PolicyVersion(p.Name)))
	}
	return answer, nil
}

// GetPolicy answers GET /v1/policies/{policy}.
func (m *Handlers) GetPolicy(ctx context.Context, r api.GetPolicyRequestObject) (api.GetPolicyResponseObject, error) {
	p, version, err := m.policyVersion(ctx, r.Policy)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, policyNotFound(r.Policy)
	}
	return api.GetPolicy200JSONResponse{
		Body: DescribePolicy(p, version), Headers: api.GetPolicy200ResponseHeaders{ETag: api.ETagOf(version)},
	}, nil
}

// policyNames are those of all policies, the built-in ones first.
func (m *Handlers) policyNames() []string {
	var names []string
	for _, p := range m.Parts.Cache.Snapshot().Policies() {
		names = append(names, p.Name)
	}
	return names
}

// policy finds a retry policy, nil if there is none. It looks again before it says no: another node may have made it a
// moment ago.
func (m *Handlers) policy(ctx context.Context, name string) (*policy.Policy, error) {
	p, _, err := m.policyVersion(ctx, name)
	return p, err
}

// policyVersion is policy with the version of what it found: both from one catalogue, so that they belong together.
func (m *Handlers) policyVersion(ctx context.Context, name string) (*policy.Policy, int64, error) {
	catalogue := m.Parts.Cache.Snapshot()
	if _, ok := catalogue.Policy(name); !ok {
		if err := m.Parts.Cache.Reload(ctx); err != nil {
			return nil, 0, err
		}
		catalogue = m.Parts.Cache.Snapshot()
	}
	p, _ := catalogue.Policy(name)
	return p, catalogue.PolicyVersion(name), nil
}

// DescribePolicy is the policy as the REST API and `policy show -o json` write it: every column, so that what is read
// can be written back. Spans are in seconds, but the time to live is in minutes, as an event subscription sets it.
// version is the one in the database; 0, of a policy that comes from none, leaves its etag out.
func DescribePolicy(p *policy.Policy, version int64) api.Policy {
	var tag *string
	if version != 0 {
		tag = new(api.ETagOf(version))
	}
	return api.Policy{
		Etag: tag, Name: p.Name, BuiltIn: p.BuiltIn, IsDefault: p.Name == policy.DefaultName, Source: p.Source,
		AckTimeoutInSeconds: seconds(p.AckTimeout), LateAnswerWindowInSeconds: seconds(p.LateAnswerWindow),
		Basis: api.PolicyBasis(p.Basis), StepsInSeconds: describeSteps(p.Steps), TailInSeconds: seconds(p.Tail),
		RetryWindowInSeconds: boundOf(p.RetryWindow),
		JitterFraction:       p.JitterFraction, JitterCapInSeconds: seconds(p.JitterCap), Expiry: api.PolicyExpiry(p.Expiry),
		MaxDeliveryAttempts: api.Range{
			Default: limitOf(p.DefaultMaxAttempts), Least: p.MinMaxAttempts, Most: p.MaxMaxAttempts,
		},
		EventTimeToLiveInMinutes: api.Range{
			Default: limitOf(minutes(p.DefaultTTL)), Least: minutes(p.MinTTL), Most: minutes(p.MaxTTL),
		},
		HonorRetryAfter: p.HonorRetryAfter, RetryAfterCapInSeconds: seconds(p.RetryAfterCap),
		RetryTransportErrors:     p.RetryTransportErrors,
		DeadLetterDefault:        api.PolicyDeadLetterDefault(p.DeadLetterDefault),
		DeadLetterDelayInSeconds: seconds(p.DeadLetterDelay), DeadLetterGiveUpInSeconds: seconds(p.DeadLetterGiveUp),
		Batching: p.Batching, Probation: describeProbation(p.Probation), StatusTable: describeCells(p.Cells),
	}
}

// The lists and the map below are never nil: JSON has [] and {} where a policy has none, not null.

func describeSteps(steps []time.Duration) []float64 {
	shown := make([]float64, 0, len(steps))
	for _, step := range steps {
		shown = append(shown, seconds(step))
	}
	return shown
}

// describeCells sorts: the database, and whoever wrote a policy, have orders of their own.
func describeCells(cells []policy.Cell) []api.StatusCell {
	shown := make([]api.StatusCell, 0, len(cells))
	for _, c := range slices.SortedStableFunc(slices.Values(cells), compareCells) {
		shown = append(shown, api.StatusCell{
			EndpointKind: api.EndpointKind(c.EndpointKind), Condition: c.Condition, Action: api.StatusCellAction(c.Action),
			MinDelayInSeconds: seconds(c.MinDelay),
		})
	}
	return shown
}

// compareCells puts webhooks first, and of their cells the statuses, then "other", then the errors.
func compareCells(x, y policy.Cell) int {
	return cmp.Or(
		-cmp.Compare(x.EndpointKind, y.EndpointKind),
		cmp.Compare(conditionClass(x.Condition), conditionClass(y.Condition)),
		cmp.Compare(x.Condition, y.Condition),
	)
}

func conditionClass(condition string) int {
	switch {
	case condition == "other":
		return 1
	case condition < ":": // a digit
		return 0
	default:
		return 2
	}
}

func describeProbation(p policy.Probation) api.Probation {
	shown := api.Probation{
		Scope: api.ProbationScope(p.Scope), Trigger: p.Trigger, FirstInSeconds: seconds(p.First),
		MaxInSeconds: seconds(p.Max),
		Action:       api.ProbationAction(p.Action), ByOutcome: make(map[string]float64, len(p.ByOutcome)),
	}
	for outcome, hold := range p.ByOutcome {
		shown.ByOutcome[string(outcome)] = seconds(hold)
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

// boundOf reads package policy's 0, which means no bound.
func boundOf(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	s := seconds(d)
	return &s
}

func minutes(d time.Duration) int { return int(d / time.Minute) }

func seconds(d time.Duration) float64 { return d.Seconds() }
