package store

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"postrider/policy"

	"github.com/jackc/pgx/v5"
)

func (c *Catalogue) readPolicies(ctx context.Context, tx querier) error {
	var newest int64
	if err := tx.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM postrider_internal.retry_policies").Scan(&newest); err != nil {
		return err
	}
	if newest == c.policiesSeen {
		return nil
	}
	list, err := queryPolicies(ctx, tx)
	if err != nil {
		return err
	}
	c.policies, c.policyVersions, c.policyList, c.policiesSeen = make(map[string]*policy.Policy, len(list)), make(map[string]int64, len(list)), nil, newest
	for i := range list {
		p := &list[i].Policy
		c.policies[p.Name], c.policyVersions[p.Name], c.policyList = p, list[i].Version, append(c.policyList, p)
	}
	return nil
}

const policyQuery = `
SELECT p.name, p.version, p.built_in, p.source, postrider_internal.seconds(ack_timeout) AS ack_timeout, postrider_internal.seconds(late_answer_window) AS late_answer_window, basis,
       (SELECT array_agg(postrider_internal.seconds(i) ORDER BY o) FROM unnest(steps) WITH ORDINALITY AS u(i, o)) AS steps,
       postrider_internal.seconds(tail) AS tail, coalesce(postrider_internal.seconds(retry_window), 0) AS retry_window, jitter_fraction, postrider_internal.seconds(jitter_cap) AS jitter_cap, expiry,
       postrider_internal.seconds(default_ttl) AS default_ttl, postrider_internal.seconds(min_ttl) AS min_ttl, postrider_internal.seconds(max_ttl) AS max_ttl, coalesce(default_max_attempts, 0) AS default_max_attempts,
       min_max_attempts, max_max_attempts, honor_retry_after, postrider_internal.seconds(retry_after_cap) AS retry_after_cap,
       retry_transport_errors, dead_letter_default,
       postrider_internal.seconds(dead_letter_delay) AS dead_letter_delay, postrider_internal.seconds(dead_letter_give_up) AS dead_letter_give_up, batching,
       probation_scope, probation_trigger, postrider_internal.seconds(probation_first) AS probation_first, postrider_internal.seconds(probation_max) AS probation_max, probation_action,
       coalesce((SELECT jsonb_agg(jsonb_build_object('EndpointKind', c.endpoint_kind, 'Condition', c.condition, 'Action', c.action,
                         'MinDelay', (postrider_internal.seconds(c.min_delay) * 1e9)::bigint) ORDER BY c.endpoint_kind, c.condition)
                   FROM postrider_internal.retry_policy_cells c WHERE c.policy = p.name), '[]') AS cells,
       (SELECT jsonb_object_agg(b.outcome, (postrider_internal.seconds(b.duration) * 1e9)::bigint) FROM postrider_internal.retry_policy_probations b WHERE b.policy = p.name) AS probations
  FROM postrider_internal.retry_policies p
 WHERE p.deleted_at IS NULL
 ORDER BY p.built_in DESC, CASE WHEN p.built_in THEN substring(p.source from '\d{4}(?:-\d\d)*$') END, p.name`

type policyRow struct {
	Name, Source, Basis, Expiry, DeadLetterDefault           string
	Version                                                  int64
	BuiltIn, HonorRetryAfter, RetryTransportErrors, Batching bool
	AckTimeout, LateAnswerWindow, Tail, RetryWindow          float64
	Steps                                                    []float64
	JitterFraction, JitterCap                                float64
	DefaultTTL                                               float64 `db:"default_ttl"`
	MinTTL                                                   float64 `db:"min_ttl"`
	MaxTTL                                                   float64 `db:"max_ttl"`
	DefaultMaxAttempts, MinMaxAttempts, MaxMaxAttempts       int
	RetryAfterCap, DeadLetterDelay, DeadLetterGiveUp         float64
	ProbationScope, ProbationAction                          string
	ProbationTrigger                                         int
	ProbationFirst, ProbationMax                             float64
	Cells, Probations                                        []byte
}

func queryPolicies(ctx context.Context, tx querier) ([]StoredPolicy, error) {
	rows, err := tx.Query(ctx, policyQuery)
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[policyRow])
	if err != nil {
		return nil, err
	}
	policies := make([]StoredPolicy, 0, len(list))
	for i := range list {
		p, err := list[i].policy()
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", list[i].Name, err)
		}
		policies = append(policies, StoredPolicy{p, list[i].Version})
	}
	return policies, nil
}

func (r *policyRow) policy() (policy.Policy, error) {
	p := policy.Policy{
		Name: r.Name, Source: r.Source, BuiltIn: r.BuiltIn, Basis: policy.Basis(r.Basis), Expiry: policy.Expiry(r.Expiry),
		AckTimeout: seconds(r.AckTimeout), LateAnswerWindow: seconds(r.LateAnswerWindow), Tail: seconds(r.Tail), RetryWindow: seconds(r.RetryWindow),
		JitterFraction: r.JitterFraction, JitterCap: seconds(r.JitterCap),
		DefaultTTL: seconds(r.DefaultTTL), MinTTL: seconds(r.MinTTL), MaxTTL: seconds(r.MaxTTL),
		DefaultMaxAttempts: r.DefaultMaxAttempts, MinMaxAttempts: r.MinMaxAttempts, MaxMaxAttempts: r.MaxMaxAttempts,
		HonorRetryAfter: r.HonorRetryAfter, RetryAfterCap: seconds(r.RetryAfterCap),
		RetryTransportErrors: r.RetryTransportErrors, Batching: r.Batching,
		DeadLetterDefault: r.DeadLetterDefault, DeadLetterDelay: seconds(r.DeadLetterDelay), DeadLetterGiveUp: seconds(r.DeadLetterGiveUp),
		Probation: policy.Probation{
			Scope: policy.ProbationScope(r.ProbationScope), Trigger: r.ProbationTrigger, First: seconds(r.ProbationFirst),
			Max: seconds(r.ProbationMax), Action: policy.ProbationAction(r.ProbationAction),
		},
	}
	for _, step := range r.Steps {
		p.Steps = append(p.Steps, seconds(step))
	}
	if err := json.Unmarshal(r.Cells, &p.Cells); err != nil {
		return p, err
	}
	if r.Probations == nil {
		return p, nil
	}
	return p, json.Unmarshal(r.Probations, &p.Probation.ByOutcome)
}

// seconds reads what postrider_internal.seconds wrote. An interval has no parts below a microsecond, a float64 has: 0.29 s must
// not become 289.999999 ms.
func seconds(s float64) time.Duration { return time.Duration(math.Round(s*1e6)) * time.Microsecond }
