package management

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"postrider/catalog"
	"postrider/policy"
	"postrider/postgres"
	"postrider/server/api"
)

// PutPolicy answers PUT /v1/policies/{policy}.
func (m *Handlers) PutPolicy(ctx context.Context, r api.PutPolicyRequestObject) (api.PutPolicyResponseObject, error) {
	when, err := api.Conditions(r.Params.IfMatch, r.Params.IfNoneMatch)
	if err != nil {
		return nil, err
	}
	if _, builtIn := policy.Builtin(r.Policy); builtIn {
		return nil, builtInRefusal(r.Policy)
	}
	p, err := readPolicy(r.Policy, r.Body)
	if err != nil {
		return nil, err
	}
	version, made, err := m.Parts.Policies.Put(ctx, p, when...)
	shown := DescribePolicy(p, version)
	switch {
	case err != nil:
		return nil, policyRefusal(p.Name, "batching must stay true: ", r.Params.IfMatch, err)
	case made:
		return api.PutPolicy201JSONResponse{Body: shown, Headers: api.PutPolicy201ResponseHeaders{ETag: *shown.Etag}}, nil
	}
	return api.PutPolicy200JSONResponse{Body: shown, Headers: api.PutPolicy200ResponseHeaders{ETag: *shown.Etag}}, nil
}

// DeletePolicy answers DELETE /v1/policies/{policy}.
func (m *Handlers) DeletePolicy(
	ctx context.Context, r api.DeletePolicyRequestObject,
) (api.DeletePolicyResponseObject, error) {
	when, err := api.Conditions(r.Params.IfMatch, nil)
	if err != nil {
		return nil, err
	}
	if !api.Storable(r.Policy) {
		return nil, policyNotFound(r.Policy)
	}
	if err := m.Parts.Policies.Delete(ctx, r.Policy, when...); err != nil {
		return nil, policyRefusal(r.Policy, "", r.Params.IfMatch, err)
	}
	return api.DeletePolicy204Response{}, nil
}

func policyNotFound(name string) error {
	return api.Refuse(http.StatusNotFound, api.CodeNotFound, "retry policy %q does not exist", api.Shorten(name))
}

func builtInRefusal(name string) error {
	return api.RefuseConflict(api.ConflictCodePolicyBuiltIn,
		"retry policy %q is built in and never changes: copy it under another name", name)
}

// policyRefusal words what the store has to say of a change; used is said before the event subscriptions in its way,
// match is If-Match.
func policyRefusal(name, used string, match *string, err error) error {
	var inUse *catalog.PolicyInUseError
	switch {
	case errors.As(err, &inUse):
		return api.RefuseConflict(api.ConflictCodePolicyInUse, "%s%s", used, inUse.Error())
	case errors.Is(err, catalog.ErrBuiltIn):
		return builtInRefusal(name)
	case errors.Is(err, postgres.ErrPrecondition):
		return api.RefusePrecondition("retry policy", name, match)
	case errors.Is(err, postgres.ErrNotFound):
		return policyNotFound(name)
	default:
		return err
	}
}

// ReadPolicy makes a policy of this name from the JSON that PUT /v1/policies/{policy} takes, which is what
// DescribePolicy gives. Its error names every mistake, one a line.
func ReadPolicy(name string, body []byte) (*policy.Policy, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, errNoObject
	}
	var settings api.PolicySettings
	err := api.DecodeStrictly(body, &settings)
	if err == nil {
		var p *policy.Policy
		if p, err = readPolicy(name, &settings); err == nil {
			return p, nil
		}
	}
	return nil, inLines(err)
}

var errNoObject = errors.New("there is no JSON object")

// inLines is an error for a terminal: every mistake, one a line.
func inLines(err error) error {
	var refused *api.RejectionError
	if !errors.As(err, &refused) || len(refused.Details) == 0 {
		return err
	}
	lines := make([]string, len(refused.Details))
	for i, detail := range refused.Details {
		lines[i] = detail.Message
	}
	return errors.New(strings.Join(lines, "\n"))
}

// readPolicy fills in the defaults, which are those of ga-2021 but for the rules that would contradict what is set
// (without a retry window of its own, a policy with a longer time to live would end at ga-2021's 24 hours), and for
// dead letters: who says nothing keeps them.
func readPolicy(name string, b *api.PolicySettings) (*policy.Policy, error) {
	if b == nil {
		b = &api.PolicySettings{}
	}
	base, known := policy.Builtin(policy.DefaultName)
	if !known {
		return nil, fmt.Errorf("there is no retry policy %s", policy.DefaultName)
	}
	p := &policy.Policy{
		Name: name, Source: optional(b.Source, ""),
		AckTimeout: spanOr(b.AckTimeoutInSeconds, base.AckTimeout), LateAnswerWindow: spanOr(b.LateAnswerWindowInSeconds, 0),
		Basis: policy.Basis(optional(b.Basis, api.PolicyBasis(base.Basis))), Steps: base.Steps,
		Tail:                 spanOr(b.TailInSeconds, base.Tail),
		RetryWindow:          spanOr(b.RetryWindowInSeconds, 0),
		JitterFraction:       optional(b.JitterFraction, base.JitterFraction),
		JitterCap:            spanOr(b.JitterCapInSeconds, base.JitterCap),
		Expiry:               policy.Expiry(optional(b.Expiry, api.PolicyExpiryAtTtl)),
		HonorRetryAfter:      optional(b.HonorRetryAfter, base.HonorRetryAfter),
		RetryAfterCap:        spanOr(b.RetryAfterCapInSeconds, base.RetryAfterCap),
		RetryTransportErrors: optional(b.RetryTransportErrors, base.RetryTransportErrors),
		DeadLetterDefault:    string(optional(b.DeadLetterDefault, api.PolicyDeadLetterDefaultRows)),
		DeadLetterDelay:      spanOr(b.DeadLetterDelayInSeconds, base.DeadLetterDelay),
		DeadLetterGiveUp:     spanOr(b.DeadLetterGiveUpInSeconds, base.DeadLetterGiveUp),
		Batching:             optional(b.Batching, base.Batching), Probation: readProbation(b.Probation, base.Probation),
		Cells: base.Cells,
	}
	if b.StepsInSeconds != nil {
		p.Steps = readSteps(*b.StepsInSeconds)
	}
	if b.StatusTable != nil {
		p.Cells = readCells(*b.StatusTable)
	}
	readLimits(p, b, &base)
	var found problems
	for _, mistake := range p.Mistakes() {
		found.Check(&mistake)
	}
	return p, found.Err()
}

func readLimits(p *policy.Policy, b *api.PolicySettings, base *policy.Policy) {
	attempts := readRange(b.MaxDeliveryAttempts,
		api.Range{Default: limitOf(base.DefaultMaxAttempts), Least: base.MinMaxAttempts, Most: base.MaxMaxAttempts}, 0)
	p.DefaultMaxAttempts, p.MinMaxAttempts, p.MaxMaxAttempts = *attempts.Default, attempts.Least, attempts.Most
	day := minutes(base.DefaultTTL)
	ttl := readRange(b.EventTimeToLiveInMinutes,
		api.Range{Default: &day, Least: minutes(base.MinTTL), Most: minutes(base.MaxTTL)}, day)
	p.DefaultTTL, p.MinTTL, p.MaxTTL = minutesOf(*ttl.Default), minutesOf(ttl.Least), minutesOf(ttl.Most)
}

// readRange is base where nothing is given. In what is given, a default that is left out is otherwise.
func readRange(given *api.RangeSettings, base api.Range, otherwise int) api.Range {
	if given == nil {
		return base
	}
	value := optional(given.Default, otherwise)
	return api.Range{
		Default: &value, Least: optional(given.Least, base.Least), Most: optional(given.Most, max(base.Most, value)),
	}
}

func readProbation(b *api.ProbationSettings, base policy.Probation) policy.Probation {
	if b == nil {
		return base
	}
	p := policy.Probation{
		Scope:  policy.ProbationScope(optional(b.Scope, api.ProbationScope(base.Scope))),
		Action: policy.ProbationAction(optional(b.Action, api.ProbationAction(base.Action))),
	}
	for outcome, hold := range optional(b.ByOutcome, nil) {
		if p.ByOutcome == nil {
			p.ByOutcome = map[policy.Outcome]time.Duration{}
		}
		p.ByOutcome[policy.Outcome(outcome)] = spanOf(hold)
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

func readSteps(given []float64) []time.Duration {
	steps := make([]time.Duration, 0, len(given))
	for _, step := range given {
		steps = append(steps, spanOf(step))
	}
	return steps
}

func readCells(given []api.StatusCellSettings) []policy.Cell {
	cells := make([]policy.Cell, 0, len(given))
	for _, c := range given {
		cells = append(cells, policy.Cell{
			EndpointKind: policy.EndpointKind(c.EndpointKind), Condition: c.Condition, Action: policy.Action(c.Action),
			MinDelay: spanOr(c.MinDelayInSeconds, 0),
		})
	}
	return cells
}

func spanOr(seconds *float64, otherwise time.Duration) time.Duration {
	if seconds == nil {
		return otherwise
	}
	return spanOf(*seconds)
}

// spanOf and minutesOf stay far within a Duration, and far outside every range, whatever is given. The database keeps
// microseconds.
func spanOf(seconds float64) time.Duration {
	const most = 1e9
	return time.Duration(math.Round(min(max(seconds, -most), most)*1e6)) * time.Microsecond
}

func minutesOf(n int) time.Duration {
	const most = 1e7
	return time.Duration(min(max(n, -most), most)) * time.Minute
}
