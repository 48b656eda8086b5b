package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"postrider/policy"

	"github.com/jackc/pgx/v5"
)

// ErrBuiltIn says that the retry policy is one of the built-in ones, which never change.
var ErrBuiltIn = errors.New("the retry policy is built in")

// PolicyInUseError names the event subscriptions that keep a retry policy from being deleted, or from no longer allowing batches.
// It is an ErrConflict.
type PolicyInUseError struct {
	Policy string
	// Users are the first ten of the event subscriptions, as "topic/subscription"; Count is how many there are.
	Users []string
	Count int
}

// Error names the first event subscriptions and says how many there are.
func (e *PolicyInUseError) Error() string {
	more := ""
	if n := e.Count - len(e.Users); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("retry policy %q is used by event subscriptions (%d): %s%s", e.Policy, e.Count, strings.Join(e.Users, ", "), more)
}

// Unwrap returns ErrConflict.
func (e *PolicyInUseError) Unwrap() error { return ErrConflict }

// Policies changes retry policies.
type Policies struct{ cache *Cache }

// PutPolicy makes or replaces a retry policy; made says which, version is the one it now has. It holds from the next decision on
// for what is owed already, on this node at once and on the others within a second. p must have no Mistakes. ErrBuiltIn;
// ErrPrecondition when one of the conditions does not hold; *PolicyInUseError when it no longer allows batches and event
// subscriptions ask for them.
func (s *Policies) PutPolicy(ctx context.Context, p *policy.Policy, when ...Condition) (version int64, made bool, err error) {
	err = s.changePolicies(ctx, func(tx pgx.Tx) error {
		version, made, err = putPolicy(ctx, tx, p, when)
		return err
	})
	return version, made, err
}

// DeletePolicy removes a retry policy. ErrNotFound, ErrBuiltIn, ErrPrecondition when one of the conditions does not hold, or
// *PolicyInUseError while event subscriptions use it.
func (s *Policies) DeletePolicy(ctx context.Context, name string, when ...Condition) error {
	return s.changePolicies(ctx, func(tx pgx.Tx) error { return deletePolicy(ctx, tx, name, when) })
}

// changePolicies is changeCatalogue. Policies are read from the catalogue, which may be a second old: whoever comes too late and reads
// again must not be shown the same version once more.
func (s *Policies) changePolicies(ctx context.Context, change func(pgx.Tx) error) error {
	err := s.cache.change(ctx, change)
	if errors.Is(err, ErrPrecondition) {
		if failed := s.cache.Reload(ctx); failed != nil {
			s.cache.log.Warn("the catalog could not be reloaded after a failed precondition", "error", failed)
		}
	}
	return err
}

// StoredPolicy is a retry policy of the database, with the version that a Condition asks for.
type StoredPolicy struct {
	policy.Policy
	Version int64
}

const (
	writePolicyStatement = `
INSERT INTO postrider_internal.retry_policies AS p (name, source, ack_timeout, late_answer_window, basis, steps, tail, retry_window, jitter_fraction, jitter_cap, expiry,
    default_ttl, min_ttl, max_ttl, default_max_attempts, min_max_attempts, max_max_attempts, honor_retry_after, retry_after_cap, retry_transport_errors,
    dead_letter_default, dead_letter_delay, dead_letter_give_up, batching, probation_scope, probation_trigger, probation_first, probation_max, probation_action)
VALUES (@name, @source, make_interval(secs => @ack_timeout), make_interval(secs => @late_answer_window), @basis,
    ARRAY(SELECT make_interval(secs => s) FROM unnest(@steps::double precision[]) WITH ORDINALITY AS u(s, n) ORDER BY n),
    make_interval(secs => @tail), make_interval(secs => nullif(@retry_window::double precision, 0)), @jitter_fraction, make_interval(secs => @jitter_cap), @expiry,
    make_interval(secs => @default_ttl), make_interval(secs => @min_ttl), make_interval(secs => @max_ttl),
    nullif(@default_max_attempts::integer, 0), @min_max_attempts, @max_max_attempts, @honor_retry_after,
    make_interval(secs => @retry_after_cap), @retry_transport_errors,
    @dead_letter_default, make_interval(secs => @dead_letter_delay), make_interval(secs => @dead_letter_give_up), @batching,
    @probation_scope, @probation_trigger, make_interval(secs => @probation_first), make_interval(secs => @probation_max), @probation_action)
ON CONFLICT (name) DO UPDATE SET source = excluded.source, ack_timeout = excluded.ack_timeout, late_answer_window = excluded.late_answer_window,
    basis = excluded.basis, steps = excluded.steps, tail = excluded.tail, retry_window = excluded.retry_window,
    jitter_fraction = excluded.jitter_fraction, jitter_cap = excluded.jitter_cap, expiry = excluded.expiry,
    default_ttl = excluded.default_ttl, min_ttl = excluded.min_ttl, max_ttl = excluded.max_ttl,
    default_max_attempts = excluded.default_max_attempts, min_max_attempts = excluded.min_max_attempts, max_max_attempts = excluded.max_max_attempts,
    honor_retry_after = excluded.honor_retry_after, retry_after_cap = excluded.retry_after_cap,
    retry_transport_errors = excluded.retry_transport_errors,
    dead_letter_default = excluded.dead_letter_default, dead_letter_delay = excluded.dead_letter_delay, dead_letter_give_up = excluded.dead_letter_give_up,
    batching = excluded.batching, probation_scope = excluded.probation_scope, probation_trigger = excluded.probation_trigger,
    probation_first = excluded.probation_first, probation_max = excluded.probation_max, probation_action = excluded.probation_action,
    created_at = CASE WHEN p.deleted_at IS NULL THEN p.created_at ELSE now() END, deleted_at = NULL`
	writeCellsStatement = `
INSERT INTO postrider_internal.retry_policy_cells (policy, endpoint_kind, condition, action, min_delay)
SELECT @name, kind, condition, action, make_interval(secs => delay)
  FROM unnest(@kinds::text[], @conditions::text[], @actions::text[], @delays::double precision[]) AS c(kind, condition, action, delay)`
	writeProbationsStatement = `
INSERT INTO postrider_internal.retry_policy_probations (policy, outcome, duration)
SELECT @name, outcome, make_interval(secs => duration) FROM unnest(@outcomes::text[], @durations::double precision[]) AS b(outcome, duration)`
)

// ErrNoPolicy: the retry policy named does not exist.
var ErrNoPolicy = errors.New("no such retry policy")

func putPolicy(ctx context.Context, tx pgx.Tx, p *policy.Policy, when []Condition) (version int64, made bool, err error) {
	existing, err := ownPolicy(ctx, tx, p.Name)
	if err != nil {
		return 0, false, err
	}
	if err := Allow(when, existing.version()); err != nil {
		return 0, false, err
	}
	if !p.Batching {
		// The rule of policy.ResolveBatch.
		const batches = "AND (s.max_events_per_batch > 1 OR s.max_events_per_batch IS NULL AND s.preferred_batch_size_in_kilobytes IS NOT NULL)"
		if err := refuseUsed(ctx, tx, p.Name, batches); err != nil {
			return 0, false, err
		}
	}
	before, err := readSettings(ctx, tx, policySettings, p.Name)
	if err != nil {
		return 0, false, err
	}
	if version, err = writePolicy(ctx, tx, p); err != nil {
		return 0, false, err
	}
	action := auditPolicyReplaced
	if existing == nil {
		action = auditPolicyMade
	}
	return version, existing == nil, auditPolicy(ctx, tx, action, p.Name, before)
}

// writePolicy stores the policy and its tables. The version is read at the end, for each row of a table moves it.
func writePolicy(ctx context.Context, tx pgx.Tx, p *policy.Policy) (version int64, err error) {
	if _, err := tx.Exec(ctx, writePolicyStatement, policyArgs(p)); err != nil {
		return 0, fmt.Errorf("store retry policy %q: %w", p.Name, err)
	}
	if err := forgetTables(ctx, tx, p.Name); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, writeCellsStatement, cellArgs(p)); err != nil {
		return 0, fmt.Errorf("store the status table of retry policy %q: %w", p.Name, err)
	}
	if _, err := tx.Exec(ctx, writeProbationsStatement, probationArgs(p)); err != nil {
		return 0, fmt.Errorf("store the probation of retry policy %q: %w", p.Name, err)
	}
	if err := tx.QueryRow(ctx, "SELECT version FROM postrider_internal.retry_policies WHERE name = $1", p.Name).Scan(&version); err != nil {
		return 0, fmt.Errorf("read the version of retry policy %q: %w", p.Name, err)
	}
	return version, nil
}

func auditPolicy(ctx context.Context, tx pgx.Tx, action auditAction, name string, before settings) error {
	after, err := readSettings(ctx, tx, policySettings, name)
	if err != nil {
		return err
	}
	return audit(ctx, tx, auditEntry{action: action, details: map[string]any{"policy": name}, changes: changes(before, after)})
}

func deletePolicy(ctx context.Context, tx pgx.Tx, name string, when []Condition) error {
	existing, err := ownPolicy(ctx, tx, name)
	switch {
	case err != nil:
		return err
	case existing == nil:
		return fmt.Errorf("retry policy %q: %w", name, ErrNotFound)
	}
	if err := Allow(when, existing.version()); err != nil {
		return err
	}
	if err := refuseUsed(ctx, tx, name, ""); err != nil {
		return err
	}
	before, err := readSettings(ctx, tx, policySettings, name)
	if err != nil {
		return err
	}
	if err := forgetTables(ctx, tx, name); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "UPDATE postrider_internal.retry_policies SET deleted_at = now() WHERE name = $1", name); err != nil {
		return fmt.Errorf("delete retry policy %q: %w", name, err)
	}
	return auditPolicy(ctx, tx, auditPolicyDeleted, name, before)
}

// ownedPolicy is what a change of a retry policy must know of the one that is there.
type ownedPolicy struct{ Version int64 }

// version is 0 for nil.
func (p *ownedPolicy) version() int64 {
	if p == nil {
		return 0
	}
	return p.Version
}

// ownPolicy finds a policy that may be changed, nil where there is none; ErrBuiltIn for one that may not.
func ownPolicy(ctx context.Context, tx pgx.Tx, name string) (*ownedPolicy, error) {
	var found ownedPolicy
	var builtIn bool
	err := tx.QueryRow(ctx, "SELECT version, built_in FROM postrider_internal.retry_policies WHERE name = $1 AND deleted_at IS NULL", name).Scan(&found.Version, &builtIn)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look for retry policy %q: %w", name, err)
	case builtIn:
		return nil, fmt.Errorf("retry policy %q: %w", name, ErrBuiltIn)
	}
	return &found, nil
}

// refuseUsed is a *PolicyInUseError where event subscriptions use the policy and meet the condition.
func refuseUsed(ctx context.Context, tx pgx.Tx, name, condition string) error {
	const most = 10
	used := &PolicyInUseError{Policy: name}
	rows, err := tx.Query(ctx, `SELECT t.name || '/' || s.name, count(*) OVER () FROM postrider_internal.event_subscriptions s
		  JOIN postrider_internal.topics t ON t.id = s.topic_id
		 WHERE s.retry_policy = $1 AND s.deleted_at IS NULL `+condition+` ORDER BY t.name, s.name LIMIT $2`, name, most)
	if err == nil {
		var user string
		_, err = pgx.ForEachRow(rows, []any{&user, &used.Count}, func() error {
			used.Users = append(used.Users, user)
			return nil
		})
	}
	switch {
	case err != nil:
		return fmt.Errorf("look who uses retry policy %q: %w", name, err)
	case used.Count > 0:
		return used
	}
	return nil
}

// forgetTables removes a policy's status table and holds.
func forgetTables(ctx context.Context, tx pgx.Tx, name string) error {
	for _, statement := range []string{
		"DELETE FROM postrider_internal.retry_policy_cells WHERE policy = $1",
		"DELETE FROM postrider_internal.retry_policy_probations WHERE policy = $1",
	} {
		if _, err := tx.Exec(ctx, statement, name); err != nil {
			return fmt.Errorf("clear the tables of retry policy %q: %w", name, err)
		}
	}
	return nil
}

// policyArgs has spans in seconds: where PgBouncer lets nothing be prepared, PostgreSQL is told only that they are numbers.
func policyArgs(p *policy.Policy) pgx.NamedArgs {
	return pgx.NamedArgs{
		"name": p.Name, "source": p.Source, "ack_timeout": p.AckTimeout.Seconds(), "late_answer_window": p.LateAnswerWindow.Seconds(),
		"basis": string(p.Basis), "steps": inSeconds(p.Steps), "tail": p.Tail.Seconds(), "retry_window": p.RetryWindow.Seconds(),
		"jitter_fraction": p.JitterFraction, "jitter_cap": p.JitterCap.Seconds(), "expiry": string(p.Expiry),
		"default_ttl": p.DefaultTTL.Seconds(), "min_ttl": p.MinTTL.Seconds(), "max_ttl": p.MaxTTL.Seconds(),
		"default_max_attempts": p.DefaultMaxAttempts, "min_max_attempts": p.MinMaxAttempts, "max_max_attempts": p.MaxMaxAttempts,
		"honor_retry_after": p.HonorRetryAfter, "retry_after_cap": p.RetryAfterCap.Seconds(), "retry_transport_errors": p.RetryTransportErrors,
		"dead_letter_default": p.DeadLetterDefault, "dead_letter_delay": p.DeadLetterDelay.Seconds(), "dead_letter_give_up": p.DeadLetterGiveUp.Seconds(),
		"batching": p.Batching, "probation_scope": string(p.Probation.Scope), "probation_trigger": p.Probation.Trigger,
		"probation_first": p.Probation.First.Seconds(), "probation_max": p.Probation.Max.Seconds(), "probation_action": string(p.Probation.Action),
	}
}

func cellArgs(p *policy.Policy) pgx.NamedArgs {
	var kinds, conditions, actions []string
	var delays []time.Duration
	for _, c := range p.Cells {
		kinds, conditions, actions = append(kinds, string(c.EndpointKind)), append(conditions, c.Condition), append(actions, string(c.Action))
		delays = append(delays, c.MinDelay)
	}
	return pgx.NamedArgs{"name": p.Name, "kinds": kinds, "conditions": conditions, "actions": actions, "delays": inSeconds(delays)}
}

func probationArgs(p *policy.Policy) pgx.NamedArgs {
	outcomes, durations := []string{}, []time.Duration{}
	for outcome, duration := range p.Probation.ByOutcome {
		outcomes, durations = append(outcomes, string(outcome)), append(durations, duration)
	}
	return pgx.NamedArgs{"name": p.Name, "outcomes": outcomes, "durations": inSeconds(durations)}
}

func inSeconds(spans []time.Duration) []float64 {
	list := make([]float64, 0, len(spans))
	for _, span := range spans {
		list = append(list, span.Seconds())
	}
	return list
}
