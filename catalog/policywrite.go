package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"postrider/access"
	"postrider/policy"
	"postrider/postgres"

	"github.com/jackc/pgx/v5"
)

// ErrBuiltIn means: the retry policy is a built-in one. Built-in policies never change.
var ErrBuiltIn = errors.New("the retry policy is built in")

// PolicyInUseError names the event subscriptions that keep a retry policy from being deleted, or from no longer
// allowing batches. It is an ErrConflict.
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
	return fmt.Sprintf("retry policy %q is used by event subscriptions (%d): %s%s",
		e.Policy, e.Count, strings.Join(e.Users, ", "), more)
}

// Unwrap returns ErrConflict.
func (e *PolicyInUseError) Unwrap() error { return postgres.ErrConflict }

// Policies changes retry policies.
type Policies struct{ cache *Cache }

// Put creates or replaces a retry policy, and returns its version. Pending deliveries use it from their next
// decision on; other nodes have it within a second. The caller checks p: its Mistakes, and the ranges of spec.Policy.
// ErrBuiltIn; ErrPrecondition; *PolicyInUseError: it no longer allows batches, and event subscriptions use them.
func (s *Policies) Put(
	ctx context.Context, p *policy.Policy, when ...postgres.Condition,
) (version postgres.Version, created bool, err error) {
	err = s.changePolicies(ctx, func(tx pgx.Tx) error {
		version, created, err = putPolicy(ctx, tx, p, when)
		return err
	})
	return version, created, err
}

// Delete deletes a retry policy. ErrNotFound; ErrBuiltIn; ErrPrecondition; *PolicyInUseError.
func (s *Policies) Delete(ctx context.Context, name string, when ...postgres.Condition) error {
	return s.changePolicies(ctx, func(tx pgx.Tx) error { return deletePolicy(ctx, tx, name, when) })
}

// changePolicies reloads after a failed precondition too. Policies are read from the Snapshot in memory: a client that
// reads again must not get the same old version.
func (s *Policies) changePolicies(ctx context.Context, change func(pgx.Tx) error) error {
	err := s.cache.change(ctx, change)
	if errors.Is(err, postgres.ErrPrecondition) {
		if failed := s.cache.Reload(ctx); failed != nil {
			s.cache.log.Warn("the catalog could not be reloaded after a failed precondition", "error", failed)
		}
	}
	return err
}

// StoredPolicy is a retry policy with its version.
type StoredPolicy struct {
	policy.Policy
	Version postgres.Version
}

var writePolicyStatement = sqlFile("policy_put.sql")

const (
	writeCellsStatement = `
INSERT INTO postrider_internal.retry_policy_cells (policy, endpoint_kind, condition, action, min_delay)
SELECT @name, kind, condition, action, make_interval(secs => delay) FROM unnest(@kinds::text[], @conditions::text[],
       @actions::text[], @delays::double precision[]) AS c(kind, condition, action, delay)`
	writeProbationsStatement = `
INSERT INTO postrider_internal.retry_policy_probations (policy, outcome, duration)
SELECT @name, outcome, make_interval(secs => duration)
  FROM unnest(@outcomes::text[], @durations::double precision[]) AS b(outcome, duration)`
)

// ErrNoPolicy means: the retry policy named does not exist.
var ErrNoPolicy = errors.New("no such retry policy")

func putPolicy(
	ctx context.Context, tx pgx.Tx, p *policy.Policy, when []postgres.Condition,
) (version postgres.Version, created bool, err error) {
	existing, err := ownPolicy(ctx, tx, p.Name)
	if err != nil {
		return 0, false, err
	}
	if err := postgres.CheckConditions(when, existing); err != nil {
		return 0, false, err
	}
	if !p.Batching {
		if err := rejectUsed(ctx, tx, p.Name, true); err != nil {
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
	action := access.AuditPolicyReplaced
	if existing == 0 {
		action = access.AuditPolicyMade
	}
	return version, existing == 0, auditPolicy(ctx, tx, action, p.Name, before)
}

// writePolicy stores the policy and its tables. It reads the version last: each row of a table changes it.
func writePolicy(ctx context.Context, tx pgx.Tx, p *policy.Policy) (version postgres.Version, err error) {
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
	const query = "SELECT version FROM postrider_internal.retry_policies WHERE name = $1"
	if err := tx.QueryRow(ctx, query, p.Name).Scan(&version); err != nil {
		return 0, fmt.Errorf("read the version of retry policy %q: %w", p.Name, err)
	}
	return version, nil
}

func auditPolicy(ctx context.Context, tx pgx.Tx, action access.AuditAction, name string, before access.Settings) error {
	after, err := readSettings(ctx, tx, policySettings, name)
	if err != nil {
		return err
	}
	details := map[string]any{"policy": name}
	return access.Audit(ctx, tx,
		access.AuditEntry{Action: action, Details: details, Changes: access.Changes(before, after)})
}

func deletePolicy(ctx context.Context, tx pgx.Tx, name string, when []postgres.Condition) error {
	existing, err := ownPolicy(ctx, tx, name)
	switch {
	case err != nil:
		return err
	case existing == 0:
		return fmt.Errorf("retry policy %q: %w", name, postgres.ErrNotFound)
	}
	if err := postgres.CheckConditions(when, existing); err != nil {
		return err
	}
	if err := rejectUsed(ctx, tx, name, false); err != nil {
		return err
	}
	before, err := readSettings(ctx, tx, policySettings, name)
	if err != nil {
		return err
	}
	if err := forgetTables(ctx, tx, name); err != nil {
		return err
	}
	const deleted = "UPDATE postrider_internal.retry_policies SET deleted_at = now() WHERE name = $1"
	if _, err := tx.Exec(ctx, deleted, name); err != nil {
		return fmt.Errorf("delete retry policy %q: %w", name, err)
	}
	return auditPolicy(ctx, tx, access.AuditPolicyDeleted, name, before)
}

// ownPolicy returns the version of a policy that may be changed, 0 if there is none; ErrBuiltIn.
func ownPolicy(ctx context.Context, tx pgx.Tx, name string) (version postgres.Version, err error) {
	const query = `SELECT version, built_in FROM postrider_internal.retry_policies
		WHERE name = $1 AND deleted_at IS NULL`
	var builtIn bool
	err = tx.QueryRow(ctx, query, name).Scan(&version, &builtIn)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("look for retry policy %q: %w", name, err)
	case builtIn:
		return 0, fmt.Errorf("retry policy %q: %w", name, ErrBuiltIn)
	}
	return version, nil
}

var policyUsersQuery = sqlFile("policy_users.sql")

// rejectUsed is a *PolicyInUseError if event subscriptions use the policy; with batching, only if they use batches.
func rejectUsed(ctx context.Context, tx pgx.Tx, name string, batching bool) error {
	used := &PolicyInUseError{Policy: name}
	rows, err := tx.Query(ctx, policyUsersQuery, name, batching)
	if err == nil {
		var user string
		_, err = pgx.ForEachRow(rows, []any{&user, &used.Count}, func() error {
			used.Users = append(used.Users, user)
			return nil
		})
	}
	switch {
	case err != nil:
		return fmt.Errorf("look for users of retry policy %q: %w", name, err)
	case used.Count > 0:
		return used
	}
	return nil
}

// forgetTables removes a policy's status table and its durations of probations.
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

// policyArgs has durations in seconds: through PgBouncer, PostgreSQL only knows that they are numbers.
func policyArgs(p *policy.Policy) pgx.NamedArgs {
	return pgx.NamedArgs{
		"name": p.Name, "source": p.Source, "ack_timeout": p.AckTimeout.Seconds(),
		"late_response_window": p.LateResponseWindow.Seconds(), "basis": string(p.Basis), "steps": inSeconds(p.Steps),
		"tail": p.Tail.Seconds(), "retry_window": p.RetryWindow.Seconds(), "jitter_fraction": p.JitterFraction,
		"jitter_cap": p.JitterCap.Seconds(), "expiry": string(p.Expiry), "default_ttl": p.DefaultTTL.Seconds(),
		"min_ttl": p.MinTTL.Seconds(), "max_ttl": p.MaxTTL.Seconds(), "default_max_attempts": p.DefaultMaxAttempts,
		"min_max_attempts": p.MinMaxAttempts, "max_max_attempts": p.MaxMaxAttempts,
		"honor_retry_after": p.HonorRetryAfter, "retry_after_cap": p.RetryAfterCap.Seconds(),
		"retry_transport_errors": p.RetryTransportErrors, "dead_letter_default": p.DeadLetterDefault,
		"dead_letter_delay": p.DeadLetterDelay.Seconds(), "dead_letter_export_window": p.DeadLetterExportWindow.Seconds(),
		"batching": p.Batching, "probation_scope": string(p.Probation.Scope),
		"probation_trigger": p.Probation.Trigger, "probation_action": string(p.Probation.Action),
		"probation_first": p.Probation.First.Seconds(), "probation_max": p.Probation.Max.Seconds(),
	}
}

func cellArgs(p *policy.Policy) pgx.NamedArgs {
	var kinds, conditions, actions []string
	var delays []time.Duration
	for _, c := range p.Cells {
		kinds, conditions = append(kinds, string(c.EndpointKind)), append(conditions, c.Condition)
		actions, delays = append(actions, string(c.Action)), append(delays, c.MinDelay)
	}
	return pgx.NamedArgs{
		"name": p.Name, "kinds": kinds, "conditions": conditions, "actions": actions, "delays": inSeconds(delays),
	}
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
