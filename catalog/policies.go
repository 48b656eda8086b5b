package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"postrider/policy"
	"postrider/postgres"

	"github.com/jackc/pgx/v5"
)

func (c *Snapshot) readPolicies(ctx context.Context, tx postgres.Querier) error {
	var newest int64
	const query = "SELECT coalesce(max(version), 0) FROM postrider_internal.retry_policies"
	if err := tx.QueryRow(ctx, query).Scan(&newest); err != nil {
		return err
	}
	if newest == c.policiesSeen {
		return nil
	}
	list, err := queryPolicies(ctx, tx)
	if err != nil {
		return err
	}
	c.policies, c.policyVersions = map[string]*policy.Policy{}, map[string]postgres.Version{}
	c.policyList, c.policiesSeen = nil, newest
	for i := range list {
		p := &list[i].Policy
		c.policies[p.Name], c.policyVersions[p.Name] = p, list[i].Version
		c.policyList = append(c.policyList, p)
	}
	return nil
}

var policyQuery = sqlFile("policies.sql")

type policyRow struct {
	Name, Source, Basis, Expiry, DeadLetterDefault           string
	Version                                                  postgres.Version
	BuiltIn, HonorRetryAfter, RetryTransportErrors, Batching bool
	AckTimeout, LateResponseWindow, Tail, RetryWindow        float64
	Steps                                                    []float64
	JitterFraction, JitterCap                                float64
	DefaultTTL                                               float64 `db:"default_ttl"`
	MinTTL                                                   float64 `db:"min_ttl"`
	MaxTTL                                                   float64 `db:"max_ttl"`
	DefaultMaxAttempts, MinMaxAttempts, MaxMaxAttempts       int
	RetryAfterCap, DeadLetterDelay, DeadLetterExportWindow   float64
	ProbationScope, ProbationAction                          string
	ProbationTrigger                                         int
	ProbationFirst, ProbationMax                             float64
	Cells, Probations                                        []byte
}

func queryPolicies(ctx context.Context, tx postgres.Querier) ([]StoredPolicy, error) {
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
		AckTimeout: seconds(r.AckTimeout), LateResponseWindow: seconds(r.LateResponseWindow),
		Tail: seconds(r.Tail), RetryWindow: seconds(r.RetryWindow),
		JitterFraction: r.JitterFraction, JitterCap: seconds(r.JitterCap),
		DefaultTTL: seconds(r.DefaultTTL), MinTTL: seconds(r.MinTTL), MaxTTL: seconds(r.MaxTTL),
		DefaultMaxAttempts: r.DefaultMaxAttempts, MinMaxAttempts: r.MinMaxAttempts, MaxMaxAttempts: r.MaxMaxAttempts,
		HonorRetryAfter: r.HonorRetryAfter, RetryAfterCap: seconds(r.RetryAfterCap),
		RetryTransportErrors: r.RetryTransportErrors, Batching: r.Batching,
		DeadLetterDefault: r.DeadLetterDefault, DeadLetterDelay: seconds(r.DeadLetterDelay),
		DeadLetterExportWindow: seconds(r.DeadLetterExportWindow),
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

// seconds reads what postrider_internal.seconds wrote. An interval has no parts below a microsecond, a float64 has:
// 0.29 s must not become 289.999999 ms.
func seconds(s float64) time.Duration { return time.Duration(math.Round(s*1e6)) * time.Microsecond }
