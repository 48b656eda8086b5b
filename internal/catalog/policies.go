package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"postrider/internal/access"
	"postrider/internal/postgres"
	"postrider/policy"

	"github.com/jackc/pgx/v5"
)

// ErrBuiltIn means: the retry policy is built in and cannot be changed.
var ErrBuiltIn = errors.New("the retry policy is built in")

// PolicyInUseError names the event subscriptions that keep a retry policy from being deleted, or from no longer
// allowing batches. It is an ErrConflict.
type PolicyInUseError struct {
	Policy string
	// Users are the first ten of the event subscriptions, as "topic/subscription"; Count is how many there are.
	Users []string
	Count int
}

// Error names the first event subscriptions and their number.
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
// *FunctionError, which is ErrConflict: an existing name differs only in letter case.
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
	return s.changePolicies(ctx, func(tx pgx.Tx) error {
		existing, err := ownPolicy(ctx, tx, name)
		if err != nil {
			return err
		}
		if existing == 0 {
			return fmt.Errorf("retry policy %q: %w", name, postgres.ErrNotFound)
		}
		if err := postgres.CheckConditions(when, existing); err != nil {
			return err
		}
		if err := rejectUsed(ctx, tx, name, false); err != nil {
			return err
		}
		before, err := readSettings(ctx, tx, sql("policy_settings"), name)
		if err != nil {
			return err
		}
		if err := deleteCells(ctx, tx, name); err != nil {
			return err
		}
		const deleted = "UPDATE postrider_internal.retry_policies SET deleted_at = now() WHERE name = $1"
		if err := postgres.Exec(ctx, tx, fmt.Sprintf("delete retry policy %q", name), deleted, name); err != nil {
			return err
		}
		return auditPolicy(ctx, tx, access.AuditPolicyDeleted, name, before)
	})
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
	if existing == 0 {
		const like = `SELECT name FROM postrider_internal.retry_policies
			WHERE lower(name COLLATE "C") = lower($1 COLLATE "C") AND deleted_at IS NULL`
		if err := postgres.NameFree(ctx, tx, "retry policy", like, p.Name); err != nil {
			return 0, false, err
		}
	}
	if !p.Batching {
		if err := rejectUsed(ctx, tx, p.Name, true); err != nil {
			return 0, false, err
		}
	}
	before, err := readSettings(ctx, tx, sql("policy_settings"), p.Name)
	if err != nil {
		return 0, false, err
	}
	if version, err = writePolicy(ctx, tx, p); err != nil {
		return 0, false, err
	}
	action := access.AuditPolicyReplaced
	if existing == 0 {
		action = access.AuditPolicyCreated
	}
	return version, existing == 0, auditPolicy(ctx, tx, action, p.Name, before)
}

// writePolicy stores the policy and its status table. It reads the version last: each row of the table changes it.
func writePolicy(ctx context.Context, tx pgx.Tx, p *policy.Policy) (version postgres.Version, err error) {
	const (
		put = `INSERT INTO postrider_internal.retry_policies AS p (name, settings)
			VALUES ($1, $2::jsonb - '{name,builtIn,statusTable}'::text[])
			    ON CONFLICT (name) DO UPDATE SET settings = excluded.settings, deleted_at = NULL,
			       created_at = CASE WHEN p.deleted_at IS NULL THEN p.created_at ELSE now() END`
		cells = `INSERT INTO postrider_internal.retry_policy_cells (policy, endpoint_kind, condition, action, min_delay)
			SELECT $1, c ->> 'endpointKind', c ->> 'condition', c ->> 'action',
			       make_interval(secs => (c ->> 'minDelayInSeconds')::float8) FROM jsonb_array_elements($2::jsonb) c`
		query = "SELECT version FROM postrider_internal.retry_policies WHERE name = $1"
	)
	doing, stored := fmt.Sprintf("store retry policy %q", p.Name), p.Clone()
	if err := postgres.Exec(ctx, tx, doing, put, p.Name, stored); err != nil {
		return 0, err
	}
	if err := deleteCells(ctx, tx, p.Name); err != nil {
		return 0, err
	}
	if err := postgres.Exec(ctx, tx, doing, cells, p.Name, stored.Cells); err != nil {
		return 0, err
	}
	if err := tx.QueryRow(ctx, query, p.Name).Scan(&version); err != nil {
		return 0, fmt.Errorf("%s: %w", doing, err)
	}
	return version, nil
}

func auditPolicy(ctx context.Context, tx pgx.Tx, action access.AuditAction, name string, before access.Settings) error {
	after, err := readSettings(ctx, tx, sql("policy_settings"), name)
	if err != nil {
		return err
	}
	return access.Audit(ctx, tx, access.AuditEntry{
		Action: action, Details: map[string]any{"policy": name}, Changes: access.Changes(before, after),
	})
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
		return 0, fmt.Errorf("read retry policy %q: %w", name, err)
	case builtIn:
		return 0, fmt.Errorf("retry policy %q: %w", name, ErrBuiltIn)
	}
	return version, nil
}

// rejectUsed is a *PolicyInUseError if event subscriptions use the policy; with batching, only if they use batches.
func rejectUsed(ctx context.Context, tx pgx.Tx, name string, batching bool) error {
	used := &PolicyInUseError{Policy: name}
	type user struct {
		Name  string
		Count int
	}
	users, err := postgres.Rows[user](ctx, tx, sql("policy_users"), name, batching)
	if err != nil {
		return fmt.Errorf("read the users of retry policy %q: %w", name, err)
	}
	for _, u := range users {
		used.Users, used.Count = append(used.Users, u.Name), u.Count
	}
	if used.Count > 0 {
		return used
	}
	return nil
}

// deleteCells removes a policy's status table.
func deleteCells(ctx context.Context, tx pgx.Tx, name string) error {
	const clear = "DELETE FROM postrider_internal.retry_policy_cells WHERE policy = $1"
	return postgres.Exec(ctx, tx, fmt.Sprintf("clear the status table of retry policy %q", name), clear, name)
}

func (c *Snapshot) readPolicies(ctx context.Context, tx postgres.Querier) error {
	var newest int64
	const query = "SELECT coalesce(max(version), 0) FROM postrider_internal.retry_policies"
	if err := tx.QueryRow(ctx, query).Scan(&newest); err != nil {
		return err
	}
	if newest == c.policiesSeen {
		return nil
	}
	type stored struct {
		Version postgres.Version
		Policy  policy.Policy
	}
	list, err := postgres.Rows[stored](ctx, tx, sql("policies"))
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
