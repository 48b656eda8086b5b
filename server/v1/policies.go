package v1

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

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

// PutPolicy creates or replace a retry policy.
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
// Absent and null settings have their defaults; package spec describes each. PUT ignores Name, BuiltIn, IsDefault and
// ETag.
type Policy struct {
	// Name, 3 to 64 characters.
	Name string `json:"name"`
	// The policy is built in and cannot be changed.
	BuiltIn bool `json:"builtIn"`
	// Event subscriptions without a policy use it.
	IsDefault bool    `json:"isDefault"`
	ETag      *string `json:"etag,omitempty"`

	Source                      *string        `json:"source"`
	AckTimeoutInSeconds         *float64       `json:"ackTimeoutInSeconds"`
	LateResponseWindowInSeconds *float64       `json:"lateResponseWindowInSeconds"`
	Basis                       *policy.Basis  `json:"basis"`
	StepsInSeconds              []float64      `json:"stepsInSeconds"`
	TailInSeconds               *float64       `json:"tailInSeconds"`
	RetryWindowInSeconds        *float64       `json:"retryWindowInSeconds"`
	JitterFraction              *float64       `json:"jitterFraction"`
	JitterCapInSeconds          *float64       `json:"jitterCapInSeconds"`
	Expiry                      *policy.Expiry `json:"expiry"`
	// Limit of attempts, 1 to 1000. Default: 30, of 1 to 30.
	MaxDeliveryAttempts *Range `json:"maxDeliveryAttempts"`
	// Time to live in minutes, 1 to 43200 (30 days). Default: 1440, of 1 to 1440.
	EventTimeToLiveInMinutes        *Range   `json:"eventTimeToLiveInMinutes"`
	HonorRetryAfter                 *bool    `json:"honorRetryAfter"`
	RetryAfterCapInSeconds          *float64 `json:"retryAfterCapInSeconds"`
	RetryTransportErrors            *bool    `json:"retryTransportErrors"`
	DeadLetterDefault               *string  `json:"deadLetterDefault"`
	DeadLetterDelayInSeconds        *float64 `json:"deadLetterDelayInSeconds"`
	DeadLetterExportWindowInSeconds *float64 `json:"deadLetterExportWindowInSeconds"`
	Batching                        *bool    `json:"batching"`
	// The circuit breaker for failing endpoints. Default: as in ga-2021.
	Probation   *Probation   `json:"probation"`
	StatusTable []StatusCell `json:"statusTable"`
}

// Range is the range of a limit of event subscriptions, and its default.
type Range struct {
	// Limit of an event subscription that sets none. For attempts, null and 0 mean no limit.
	Default *int `json:"default" required:"false"`
	// Lowest limit that an event subscription may set.
	Least *int `json:"least" required:"false"`
	// Highest limit that an event subscription may set.
	Most *int `json:"most" required:"false"`
}

// Probation is the circuit breaker for failing endpoints.
type Probation struct {
	Scope          *policy.ProbationScope     `json:"scope"`
	Trigger        *int                       `json:"trigger"`
	FirstInSeconds *float64                   `json:"firstInSeconds"`
	MaxInSeconds   *float64                   `json:"maxInSeconds"`
	Action         *policy.ProbationAction    `json:"action"`
	ByOutcome      map[policy.Outcome]float64 `json:"byOutcome"`
}

// StatusCell is what a response of the endpoint leads to.
type StatusCell struct {
	// webhook or azure-resource.
	EndpointKind policy.EndpointKind `json:"endpointKind"`
	// HTTP status (200 to 599), an error without a response (timeout, canceled, socket, dns, unauthorized or argument), or
	// other, which each kind of endpoint must have.
	Condition string `json:"condition"`
	// success (of 200 to 299 only), retry, never, or never_if_dead_letter: never if dead letters are kept, otherwise
	// retry.
	Action policy.Action `json:"action"`
	// Shortest delay of a retry after the failure.
	MinDelayInSeconds *float64 `json:"minDelayInSeconds" required:"false"`
}

// DescribePolicy shows a retry policy with all settings. Version 0 omits the etag.
func DescribePolicy(p *policy.Policy, version postgres.Version) Policy {
	shown := Policy{
		Name: p.Name, BuiltIn: p.BuiltIn, IsDefault: p.Name == policy.DefaultName, Source: &p.Source,
		AckTimeoutInSeconds: seconds(p.AckTimeout), LateResponseWindowInSeconds: seconds(p.LateResponseWindow),
		Basis: &p.Basis, StepsInSeconds: []float64{}, TailInSeconds: seconds(p.Tail), JitterFraction: &p.JitterFraction,
		JitterCapInSeconds: seconds(p.JitterCap), Expiry: &p.Expiry,
		MaxDeliveryAttempts: &Range{
			Default: limitOf(p.DefaultMaxAttempts), Least: &p.MinMaxAttempts, Most: &p.MaxMaxAttempts,
		},
		EventTimeToLiveInMinutes: &Range{
			Default: limitOf(minutes(p.DefaultTTL)), Least: new(minutes(p.MinTTL)), Most: new(minutes(p.MaxTTL)),
		},
		HonorRetryAfter: &p.HonorRetryAfter, RetryAfterCapInSeconds: seconds(p.RetryAfterCap),
		RetryTransportErrors: &p.RetryTransportErrors, DeadLetterDefault: &p.DeadLetterDefault,
		DeadLetterDelayInSeconds:        seconds(p.DeadLetterDelay),
		DeadLetterExportWindowInSeconds: seconds(p.DeadLetterExportWindow),
		Batching:                        &p.Batching, StatusTable: []StatusCell{},
		Probation: &Probation{
			Scope: &p.Probation.Scope, Trigger: &p.Probation.Trigger, FirstInSeconds: seconds(p.Probation.First),
			MaxInSeconds: seconds(p.Probation.Max), Action: &p.Probation.Action, ByOutcome: map[policy.Outcome]float64{},
		},
	}
	if version != 0 {
		shown.ETag = new(api.ETagOf(version))
	}
	if p.RetryWindow != 0 {
		shown.RetryWindowInSeconds = seconds(p.RetryWindow)
	}
	for _, step := range p.Steps {
		shown.StepsInSeconds = append(shown.StepsInSeconds, step.Seconds())
	}
	for outcome, hold := range p.Probation.ByOutcome {
		shown.Probation.ByOutcome[outcome] = hold.Seconds()
	}
	for _, c := range slices.SortedStableFunc(slices.Values(p.Cells), compareCells) {
		shown.StatusTable = append(shown.StatusTable,
			StatusCell{c.EndpointKind, c.Condition, c.Action, seconds(c.MinDelay)})
	}
	return shown
}

// compareCells orders by kind of endpoint, webhooks first, then: statuses, "other", errors.
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

// ReadPolicy reads a policy from the body of PUT /v1/policies/{policy}. Its error has all mistakes, one a line.
func ReadPolicy(name string, body []byte) (*policy.Policy, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, errNoObject
	}
	var settings Policy
	if err := api.DecodeStrictly(body, &settings); err != nil {
		return nil, inLines(err)
	}
	p, err := settings.policy(name)
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

// policy adds the defaults and checks the result. The defaults are those of ga-2021 with two exceptions: dead letters
// are kept, and there is no retry window, which would end a longer time to live after 24 hours.
func (b *Policy) policy(name string) (*policy.Policy, error) {
	base, known := policy.Builtin(policy.DefaultName)
	if !known {
		return nil, fmt.Errorf("retry policy %s does not exist", policy.DefaultName)
	}
	p := &policy.Policy{
		Name: name, Source: optional(b.Source, ""),
		AckTimeout:         spanOr(b.AckTimeoutInSeconds, base.AckTimeout),
		LateResponseWindow: spanOr(b.LateResponseWindowInSeconds, 0),
		Basis:              optional(b.Basis, base.Basis), Steps: base.Steps, Tail: spanOr(b.TailInSeconds, base.Tail),
		RetryWindow: spanOr(b.RetryWindowInSeconds, 0), JitterFraction: optional(b.JitterFraction, base.JitterFraction),
		JitterCap: spanOr(b.JitterCapInSeconds, base.JitterCap), Expiry: optional(b.Expiry, policy.ExpiryAtTTL),
		HonorRetryAfter:        optional(b.HonorRetryAfter, base.HonorRetryAfter),
		RetryAfterCap:          spanOr(b.RetryAfterCapInSeconds, base.RetryAfterCap),
		RetryTransportErrors:   optional(b.RetryTransportErrors, base.RetryTransportErrors),
		DeadLetterDefault:      optional(b.DeadLetterDefault, policy.DeadLetterRows),
		DeadLetterDelay:        spanOr(b.DeadLetterDelayInSeconds, base.DeadLetterDelay),
		DeadLetterExportWindow: spanOr(b.DeadLetterExportWindowInSeconds, base.DeadLetterExportWindow),
		Batching:               optional(b.Batching, base.Batching), Probation: b.Probation.probation(base.Probation),
		Cells: base.Cells,
	}
	if b.StepsInSeconds != nil {
		p.Steps = make([]time.Duration, len(b.StepsInSeconds))
		for i, step := range b.StepsInSeconds {
			p.Steps[i] = spanOf(step)
		}
	}
	if b.StatusTable != nil {
		p.Cells = make([]policy.Cell, len(b.StatusTable))
		for i, c := range b.StatusTable {
			p.Cells[i] = policy.Cell{
				EndpointKind: c.EndpointKind, Condition: c.Condition, Action: c.Action, MinDelay: spanOr(c.MinDelayInSeconds, 0),
			}
		}
	}
	p.DefaultMaxAttempts, p.MinMaxAttempts, p.MaxMaxAttempts = b.MaxDeliveryAttempts.or(
		base.DefaultMaxAttempts, base.MinMaxAttempts, base.MaxMaxAttempts, 0)
	day := minutes(base.DefaultTTL)
	ttl, least, most := b.EventTimeToLiveInMinutes.or(day, minutes(base.MinTTL), minutes(base.MaxTTL), day)
	p.DefaultTTL, p.MinTTL, p.MaxTTL = minutesOf(ttl), minutesOf(least), minutesOf(most)
	var found problems
	found.validation(p.Mistakes())
	found.table(spec.Policy, b)
	return p, found.Err()
}

// or is the range with a base for absent members. In a present range, an absent default is otherwise, and an absent
// upper limit is at least the default.
func (r *Range) or(value, least, most, otherwise int) (int, int, int) {
	if r == nil {
		return value, least, most
	}
	value = optional(r.Default, otherwise)
	return value, optional(r.Least, least), optional(r.Most, max(most, value))
}

func (b *Probation) probation(base policy.Probation) policy.Probation {
	if b == nil {
		return base
	}
	p := policy.Probation{Scope: optional(b.Scope, base.Scope), Action: optional(b.Action, base.Action)}
	for outcome, hold := range b.ByOutcome {
		if p.ByOutcome == nil {
			p.ByOutcome = map[policy.Outcome]time.Duration{}
		}
		p.ByOutcome[outcome] = spanOf(hold)
	}
	if p.Scope == policy.ProbationNone {
		base.Trigger = 0
	}
	if p.Scope == policy.ProbationNone || p.ByOutcome != nil {
		base.First = 0
	}
	p.Trigger, p.First = optional(b.Trigger, base.Trigger), spanOr(b.FirstInSeconds, base.First)
	if p.First == 0 {
		base.Max = 0
	}
	p.Max = spanOr(b.MaxInSeconds, base.Max)
	return p
}

// optional is the value of a member, or a default if it is absent or null.
func optional[T any](given *T, otherwise T) T {
	if given == nil {
		return otherwise
	}
	return *given
}

// limitOf is nil for package policy's 0, which means no limit.
func limitOf(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

func minutes(d time.Duration) int { return int(d / time.Minute) }

func seconds(d time.Duration) *float64 { return new(d.Seconds()) }

func spanOr(seconds *float64, otherwise time.Duration) time.Duration {
	if seconds == nil {
		return otherwise
	}
	return spanOf(*seconds)
}

// spanOf and minutesOf limit their results to values that fit a Duration and are outside every valid range. The
// database stores microseconds.
func spanOf(seconds float64) time.Duration {
	const most = 1e9
	return time.Duration(math.Round(min(max(seconds, -most), most)*1e6)) * time.Microsecond
}

func minutesOf(n int) time.Duration {
	const most = 1e7
	return time.Duration(min(max(n, -most), most)) * time.Minute
}
