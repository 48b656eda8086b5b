package catalog_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/catalog/spec"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/policy"

	"github.com/stretchr/testify/require"
)

// inOrder puts the cells into the database's order.
func inOrder(p policy.Policy) policy.Policy {
	slices.SortFunc(p.Cells, func(x, y policy.Cell) int {
		return cmp.Or(cmp.Compare(x.EndpointKind, y.EndpointKind), cmp.Compare(x.Condition, y.Condition))
	})
	return p
}

func TestPutPolicyKeepsEveryValue(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	var names []string
	for _, from := range policy.Builtins() {
		names = append(names, from.Name)
	}
	for i, from := range slices.Clone(names) {
		name := fmt.Sprintf("own-%d", i)
		names = append(names, name)
		p := testnode.CopyNamed(t, from, name)
		require.True(t, tn.PutPolicy(t, p))
		require.False(t, tn.PutPolicy(t, p))
		stored, ok := tn.System.Cache.Snapshot().Policy(name)
		require.True(t, ok, "this node has it before the response")
		require.Equal(t, inOrder(p.Clone()), *stored)
	}
	other := testnode.CopyNamed(t, "namespace-2023", "own-3")
	const microsecond = policy.Seconds(time.Microsecond)
	other.AckTimeout, other.Steps[0], other.JitterCap, other.Source = 1290000*microsecond, 1001000*microsecond,
		123*microsecond, "mine"
	require.False(t, tn.PutPolicy(t, other))
	stored, _ := tn.System.Cache.Snapshot().Policy("own-3")
	require.Equal(t, inOrder(other.Clone()), *stored, "replaced as a whole, to the microsecond")

	var listed []string
	for _, p := range tn.System.Cache.Snapshot().Policies() {
		listed = append(listed, p.Name)
	}
	require.Equal(t, names, listed, "the built-in ones by age, then own ones by name")
	require.Equal(t, 6, tn.Rows(t, "retry_policies", "NOT built_in AND name LIKE 'own-%'"))
	require.Equal(t, len(other.Cells), tn.Rows(t, "retry_policy_cells", "policy = 'own-3'"))
	require.Equal(t, 10,
		tn.Count(t, "SELECT (probation_by_outcome ->> 'Busy')::int FROM postrider.retry_policies WHERE name = 'own-3'"))
}

func TestPoliciesReachTheOtherNodes(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	has := func(name string, floor time.Duration) bool {
		p, ok := other.Cache.Snapshot().Policy(name)
		return ok && p.Cell(policy.KindWebhook, policy.Result{Status: 500}).MinDelay == policy.Seconds(floor)
	}
	mine := testnode.CopyNamed(t, "ga-2021", "mine")
	tn.PutPolicy(t, mine)
	require.NoError(t, other.Cache.Reload(t.Context()))
	require.True(t, has("mine", 10*time.Second))

	mine.Cells = append(mine.Cells,
		policy.Cell{
			EndpointKind: policy.KindWebhook, Condition: "500", Action: policy.ActionRetry,
			MinDelay: policy.Seconds(time.Minute),
		})
	tn.PutPolicy(t, mine)
	require.NoError(t, other.Cache.Reload(t.Context()))
	require.True(t, has("mine", time.Minute))

	require.NoError(t, tn.System.Policies.Delete(t.Context(), "mine"))
	require.NoError(t, other.Cache.Reload(t.Context()))
	_, ok := other.Cache.Snapshot().Policy("mine")
	require.False(t, ok)
}

// Of several who have read the same version one changes it.
func TestConditionsOfPolicies(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	mine := testnode.CopyNamed(t, "ga-2021", "mine")
	put := func(when postgres.Condition) (postgres.Version, error) {
		version, _, err := tn.System.Policies.Put(t.Context(), mine, when)
		return version, err
	}
	require.ErrorIs(t, testnode.ErrorOf(put(postgres.Condition{Present: true})), postgres.ErrPrecondition)
	first, err := put(postgres.Condition{Absent: true})
	require.NoError(t, err)
	require.Equal(t, first, tn.System.Cache.Snapshot().PolicyVersion("mine"))
	require.ErrorIs(t, testnode.ErrorOf(put(postgres.Condition{Absent: true})), postgres.ErrPrecondition)

	var done atomic.Int64
	testnode.AtOnce(4, func(int) {
		if _, err := put(postgres.Condition{Versions: []postgres.Version{first}}); err == nil {
			done.Add(1)
		}
	})
	require.EqualValues(t, 1, done.Load(), "of four that saw the same version")

	other := tn.Beside(t, node.Options{Node: "node-2"}).System
	require.NoError(t, other.Cache.Reload(t.Context()))
	second, err := put(postgres.Condition{Present: true})
	require.NoError(t, err)
	_, _, err = other.Policies.Put(t.Context(), mine, postgres.Condition{Versions: []postgres.Version{first}})
	require.ErrorIs(t, err, postgres.ErrPrecondition)
	require.Equal(t, second, other.Cache.Snapshot().PolicyVersion("mine"), "another node that reads again sees the change")
	require.ErrorIs(t, tn.System.Policies.Delete(t.Context(), "mine",
		postgres.Condition{Versions: []postgres.Version{first}}), postgres.ErrPrecondition)
	require.NoError(t, tn.System.Policies.Delete(t.Context(), "mine",
		postgres.Condition{Versions: []postgres.Version{tn.System.Cache.Snapshot().PolicyVersion("mine")}}))
	require.Zero(t, tn.System.Cache.Snapshot().PolicyVersion("mine"))
	_, _, err = tn.System.Policies.Put(t.Context(), testnode.CopyNamed(t, "ga-2018", "ga-2021"),
		postgres.Condition{Absent: true})
	require.ErrorIs(t, err, catalog.ErrBuiltIn)
}

// For a setting that is absent or null, the engine would take its default, but the views would not show it.
func TestPolicyTableRejectsMissingSettings(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	nullable := []string{"source", "retryWindowInSeconds", "maxDeliveryAttempts,default"}
	for _, s := range spec.Policy {
		path := strings.ReplaceAll(s.Name, ".", ",")
		if path == "statusTable" { // has rows
			continue
		}
		for change, allowed := range map[string]bool{
			"settings #- $1": path == "source", "jsonb_set(settings, $1, 'null')": slices.Contains(nullable, path),
		} {
			_, err := tn.Pool.Exec(t.Context(), "UPDATE postrider_internal.retry_policies SET settings = "+change,
				"{"+path+"}")
			if allowed {
				require.NoError(t, err, "%s: %s", path, change)
				continue
			}
			require.ErrorContains(t, err, "retry_policies_settings_check", "%s: %s", path, change)
		}
	}
}

// The engine reads these settings, so the table has none that it does not know.
func TestPolicyTableRejectsUnknownChoices(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	for _, path := range []string{
		"{basis}", "{expiry}", "{deadLetterDefault}", "{probation,scope}", "{probation,action}",
	} {
		for _, change := range []string{`jsonb_set(settings, $1, '"other"')`, "settings #- $1"} {
			_, err := tn.Pool.Exec(t.Context(), "UPDATE postrider_internal.retry_policies SET settings = "+change, path)
			require.ErrorContains(t, err, "retry_policies_settings_check", path)
		}
	}
}

// The rows of built-in policies say what the code says.
func TestBuiltInPoliciesNeverChange(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	_, _, err := tn.System.Policies.Put(t.Context(), testnode.CopyNamed(t, "ga-2018", "ga-2021"))
	require.ErrorIs(t, err, catalog.ErrBuiltIn)
	require.ErrorIs(t, tn.System.Policies.Delete(t.Context(), "ga-2021"), catalog.ErrBuiltIn)
	require.ErrorIs(t, tn.System.Policies.Delete(t.Context(), "mine"), postgres.ErrNotFound)
	for _, builtin := range policy.Builtins() {
		stored, _ := tn.System.Cache.Snapshot().Policy(builtin.Name)
		require.Equal(t, inOrder(builtin), *stored)
	}

	tn.Exec(t, "UPDATE postrider_internal.retry_policy_cells SET min_delay = '77 seconds' "+
		"WHERE policy = 'ga-2021' AND condition = '503' AND endpoint_kind = 'webhook'")
	require.NoError(t, tn.System.Cache.Reload(t.Context()))
	stored, _ := tn.System.Cache.Snapshot().Policy("ga-2021")
	require.Equal(t, policy.Seconds(77*time.Second), stored.Cell(policy.KindWebhook, policy.Result{Status: 503}).MinDelay,
		"a change of a cell is a change of the catalog")
}

func TestDeletePolicy(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.PutPolicy(t, testnode.CopyNamed(t, "namespace-2023", "mine"))
	under := func(s *catalog.SubscriptionSpec) { s.RetryPolicy.Policy = "mine" }
	var users []string
	for i := range 12 {
		name := fmt.Sprintf("sub-%02d", i)
		tn.Subscribe(t, "orders", name, under)
		users = append(users, "orders/"+name)
	}
	var used *catalog.PolicyInUseError
	err := tn.System.Policies.Delete(t.Context(), "mine")
	require.ErrorAs(t, err, &used)
	require.ErrorIs(t, err, postgres.ErrConflict)
	require.Equal(t, catalog.PolicyInUseError{Policy: "mine", Users: users[:10], Count: 12}, *used)
	require.Contains(t, used.Error(), "used by event subscriptions (12): orders/sub-00, ")
	require.Contains(t, used.Error(), "orders/sub-09 and 2 more")

	for i := range 12 {
		require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", fmt.Sprintf("sub-%02d", i)))
	}
	require.NoError(t, tn.System.Policies.Delete(t.Context(), "mine"), "event subscriptions that are deleted use nothing")
	_, ok := tn.System.Cache.Snapshot().Policy("mine")
	require.False(t, ok)
	require.Zero(t, tn.Count(t, "SELECT (SELECT count(*) FROM postrider.retry_policies "+
		"WHERE name = 'mine') + (SELECT count(*) FROM postrider.retry_policy_cells WHERE policy = 'mine')"))
	require.ErrorIs(t, tn.System.Policies.Delete(t.Context(), "mine"), postgres.ErrNotFound)

	s := testnode.SubscriptionSpec()
	under(&s)
	_, _, err = tn.System.Subscriptions.Put(t.Context(), "orders", "late", s)
	require.ErrorIs(t, err, catalog.ErrNoPolicy)
	require.NotErrorIs(t, err, postgres.ErrNotFound, "that would be the topic")
	require.Zero(t, tn.Rows(t, "event_subscriptions", ""))

	require.True(t, tn.PutPolicy(t, testnode.CopyNamed(t, "ga-2018", "mine")), "the name is free again")
	stored, _ := tn.System.Cache.Snapshot().Policy("mine")
	require.Equal(t, inOrder(*testnode.CopyNamed(t, "ga-2018", "mine")), *stored)
	tn.Subscribe(t, "orders", "late", under)
}

func TestBatchesKeepTheirPolicyBatching(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	mine := testnode.CopyNamed(t, "ga-2021", "mine")
	tn.PutPolicy(t, mine)
	size := 64
	tn.Subscribe(t, "orders", "alone", func(s *catalog.SubscriptionSpec) { s.RetryPolicy.Policy = "mine" })
	tn.Subscribe(t, "orders", "sized",
		func(s *catalog.SubscriptionSpec) {
			s.RetryPolicy.Policy, s.PreferredBatchSizeInKilobytes = "mine", &size
		})
	tn.Subscribe(t, "orders", "counted",
		func(s *catalog.SubscriptionSpec) { s.RetryPolicy.Policy, s.MaxEventsPerBatch = "mine", &size })
	mine.Batching = false
	var used *catalog.PolicyInUseError
	_, _, err := tn.System.Policies.Put(t.Context(), mine)
	require.ErrorAs(t, err, &used)
	require.Equal(t, []string{"orders/counted", "orders/sized"}, used.Users)
	stored, _ := tn.System.Cache.Snapshot().Policy("mine")
	require.True(t, stored.Batching)
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "sized"))
	one := 1
	tn.Subscribe(t, "orders", "counted", func(s *catalog.SubscriptionSpec) {
		s.RetryPolicy.Policy, s.MaxEventsPerBatch, s.PreferredBatchSizeInKilobytes = "mine", &one, &size
	})
	require.False(t, tn.PutPolicy(t, mine), "a maximum of one is no batch")
}

func TestViewShowsLimitsInForce(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	mine := testnode.CopyNamed(t, "ga-2021", "mine")
	tn.PutPolicy(t, mine)
	attempts, ttl := 30, 1440
	tn.Subscribe(t, "orders", "set", func(s *catalog.SubscriptionSpec) {
		s.RetryPolicy.Policy, s.RetryPolicy.MaxDeliveryAttempts, s.RetryPolicy.EventTimeToLiveInMinutes = "mine",
			&attempts, &ttl
	})
	tn.Subscribe(t, "orders", "unset", func(s *catalog.SubscriptionSpec) { s.RetryPolicy.Policy = "mine" })
	const limits = `SELECT string_agg(concat_ws(' ', subscription, max_delivery_attempts, event_time_to_live_in_minutes),
		    ', ' ORDER BY subscription) FROM postrider.event_subscriptions`
	require.Equal(t, "set 30 1440, unset 30 1440", tn.Text(t, limits))
	const minute = policy.Minutes(time.Minute)
	mine.MaxAttempts.Default, mine.MaxAttempts.Most, mine.TTL.Default, mine.TTL.Most = 0, 3, minute, 60*minute
	tn.PutPolicy(t, mine)
	require.Equal(t, "set 3 60, unset 1", tn.Text(t, limits))
	mine.MaxAttempts.Least, mine.MaxAttempts.Most = 40, 50
	mine.TTL.Least, mine.TTL.Most, mine.TTL.Default = 2880*minute, 4320*minute, 2880*minute
	tn.PutPolicy(t, mine)
	require.Equal(t, "set 40 2880, unset 2880", tn.Text(t, limits))
}
