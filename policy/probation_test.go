package policy_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"postrider/policy"

	"github.com/stretchr/testify/require"
)

// failDifferent returns the state after n different events failed with 500, one a second from `from` on.
func failDifferent(p *policy.Policy, r policy.ProbationState, n int, from time.Time) policy.ProbationState {
	for i := range n {
		at := from.Add(time.Duration(i) * time.Second)
		r, _ = p.Probation.AfterFailure(r, policy.OutcomeGenericError, status(500), true, at)
	}
	return r
}

func TestTenDifferentEventsStartDelayedDelivery(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ga-2019", "ga-2021"} {
		p := builtin(t, name)
		r := failDifferent(p, policy.ProbationState{}, 9, published)
		require.Equal(t, policy.ProbationState{FailuresInARow: 9}, r)
		require.False(t, r.Held())
		tenth := seconds(9)
		r, changed := p.Probation.AfterFailure(r, policy.OutcomeBusy, status(503), true, tenth)
		require.True(t, changed)
		require.Equal(t, policy.ProbationState{
			Since: tenth, Until: tenth.Add(5 * time.Minute), Cause: policy.OutcomeBusy, Result: status(503), Step: 1,
			FailuresInARow: 10,
		}, r)
		require.True(t, r.Held())
	}
}

func TestSuccessResetsTheCount(t *testing.T) {
	t.Parallel()
	p := builtin(t, "ga-2021")
	r, changed := p.Probation.AfterSuccess(failDifferent(p, policy.ProbationState{}, 9, published), seconds(9))
	require.True(t, changed)
	require.Zero(t, r)
	require.False(t, failDifferent(p, r, 9, seconds(10)).Held())
	require.True(t, failDifferent(p, r, 10, seconds(10)).Held())
	_, changed = p.Probation.AfterSuccess(policy.ProbationState{}, published)
	require.False(t, changed, "a healthy endpoint stays as it is")
}

func TestRetriesOfOneEventStartNoHold(t *testing.T) {
	t.Parallel()
	p := builtin(t, "ga-2019")
	r, changed := p.Probation.AfterFailure(
		policy.ProbationState{}, policy.OutcomeTimedOut, failure(policy.ErrorTimeout), false, published)
	require.True(t, changed, "the first failure in a row is an event of its own, retried or not")
	for i := range 50 {
		r, changed = p.Probation.AfterFailure(r, policy.OutcomeTimedOut, failure(policy.ErrorTimeout), false, seconds(i))
		require.False(t, changed)
	}
	require.Equal(t, policy.ProbationState{FailuresInARow: 1}, r)
}

func TestFailuresThatProbationCounts(t *testing.T) {
	t.Parallel()
	counts := func(name string, o policy.Outcome) bool {
		r, changed := builtin(t, name).Probation.AfterFailure(policy.ProbationState{}, o, policy.Result{}, true, published)
		require.Equal(t, r.FailuresInARow == 1, changed)
		return changed
	}
	never := []policy.Outcome{"Delivered", "Canceled", "Probation", "Aborted"}
	notOfTheTable := []policy.Outcome{
		"BadRequest", "PayloadTooLarge", "GenericError", "SessionQueueNotSupported", "NoSuchOutcome",
	}
	for _, o := range everyOutcome {
		classic := !slices.Contains(never, o)
		for name, want := range map[string]bool{
			"preview-2017": false, "ga-2018": false, "ga-2019": classic, "ga-2021": classic,
			"namespace-2023": classic && !slices.Contains(notOfTheTable, o),
		} {
			require.Equal(t, want, counts(name, o), "%s %s", name, o)
		}
	}
}

// Under safe a failure counts only if it concerns the endpoint; under documented every failure counts.
func TestSafeCountsFailuresOfTheEndpoint(t *testing.T) {
	t.Parallel()
	counted := map[int]bool{401: true, 403: true, 404: true, 408: true, 429: true}
	for _, name := range []string{"ga-2019", "ga-2021"} {
		safe := builtin(t, name).Resolve(policy.Overrides{}).Policy
		documented := builtin(t, name).Resolve(policy.Overrides{Behavior: policy.BehaviorDocumented}).Policy
		for _, met := range everyResult()[1:] {
			o := safe.Classify(policy.KindWebhook, met)
			if o == policy.OutcomeDelivered || o == policy.OutcomeCanceled {
				continue
			}
			_, counts := documented.Probation.AfterFailure(policy.ProbationState{}, o, met, true, published)
			require.True(t, counts, met)
			_, counts = safe.Probation.AfterFailure(policy.ProbationState{}, o, met, true, published)
			unsent := met.Err == policy.ErrorUnauthorized || met.Err == policy.ErrorArgument
			concerns := met.Err != "" && !unsent && met.Err != policy.ErrorSession
			require.Equal(t, concerns || counted[met.Status] || met.Status >= 500, counts, met)
		}
		held := failDifferent(safe, policy.ProbationState{}, 10, published)
		require.True(t, held.Held())
		r, _ := safe.Probation.AfterProbe(held, policy.OutcomeBadRequest, status(400), held.Until)
		require.Zero(t, r, "the endpoint responds again, though not to this event")
		r, _ = documented.Probation.AfterProbe(held, policy.OutcomeBadRequest, status(400), held.Until)
		require.True(t, r.Held())
		credentials := failure(policy.ErrorUnauthorized)
		r, changed := safe.Probation.AfterProbe(held, policy.OutcomeUnauthorized, credentials, held.Until)
		require.False(t, changed, "no request was sent: the next probe is due")
		require.Equal(t, held, r)
		r, _ = safe.Probation.AfterProbe(
			held, policy.OutcomeSessionQueueNotSupported, failure(policy.ErrorSession), held.Until)
		require.Zero(t, r, "the broker responds again, though not to this event")
		r, _ = safe.Probation.AfterProbe(held, policy.OutcomeFull, failure(policy.ErrorFull), held.Until)
		require.True(t, r.Held())
	}
}

// namespaceHolds is the table of Microsoft's namespace page (2023-11).
var namespaceHolds = policy.Holds{
	"Busy": 10 * second, "TimedOut": 10 * second, "SocketError": 30 * second,
	"NotFound": 5 * minute, "ResolutionError": 5 * minute, "Disabled": 5 * minute, "Full": 5 * minute,
	"Unauthorized": 5 * minute, "Forbidden": 5 * minute, "InvalidAzureFunctionDestination": 10 * minute,
}

func TestProbationTable(t *testing.T) {
	t.Parallel()
	p := builtin(t, "namespace-2023")
	for outcome, duration := range namespaceHolds {
		for _, differentEvent := range []bool{true, false} {
			r, changed := p.Probation.AfterFailure(policy.ProbationState{}, outcome, policy.Result{}, differentEvent, published)
			require.True(t, changed)
			require.Equal(t, policy.ProbationState{
				Since: published, Until: after(time.Duration(duration)), Cause: outcome, Step: 1, FailuresInARow: 1,
			}, r)
		}
	}
}

func TestFailedProbesDoubleTheHold(t *testing.T) {
	t.Parallel()
	p := builtin(t, "ga-2021")
	r := failDifferent(p, policy.ProbationState{}, 10, published)
	began := r.Since
	for i, minutes := range []int{10, 20, 40, 80, 160, 240, 240, 240} {
		now := r.Until
		require.True(t, r.ProbeDue(now))
		next, changed := p.Probation.AfterProbe(r, policy.OutcomeTimedOut, failure(policy.ErrorTimeout), now)
		require.True(t, changed)
		require.Equal(t, policy.ProbationState{
			Since: began, Until: now.Add(time.Duration(minutes) * time.Minute), Cause: policy.OutcomeTimedOut,
			Result: failure(policy.ErrorTimeout), Step: i + 2, FailuresInARow: 10,
		}, next)
		r = next
	}
	r, changed := p.Probation.AfterProbe(r, policy.OutcomeDelivered, status(200), r.Until)
	require.True(t, changed)
	require.Zero(t, r)
	require.Equal(t, 5*time.Minute, failDifferent(p, r, 10, seconds(0)).Until.Sub(seconds(9)),
		"after a success it begins anew")
}

func TestProbeOfANamespaceSubscription(t *testing.T) {
	t.Parallel()
	p := builtin(t, "namespace-2023")
	held := func(until int, cause policy.Outcome, step int) policy.ProbationState {
		return policy.ProbationState{Since: published, Until: seconds(until), Cause: cause, Step: step, FailuresInARow: 1}
	}
	first, _ := p.Probation.AfterFailure(policy.ProbationState{}, policy.OutcomeBusy, policy.Result{}, true, published)
	require.Equal(t, held(10, policy.OutcomeBusy, 1), first)
	for _, tt := range []struct {
		name  string
		probe policy.Outcome
		want  policy.ProbationState
	}{
		{"succeeds", policy.OutcomeDelivered, policy.ProbationState{}},
		{"fails alike: the table's time again, not doubled", policy.OutcomeBusy, held(30, policy.OutcomeBusy, 2)},
		{"fails in another way", policy.OutcomeNotFound, held(320, policy.OutcomeNotFound, 2)},
		{"fails in a way that the table does not hold for", policy.OutcomeGenericError, policy.ProbationState{}},
		{"is canceled: the next one is due", policy.OutcomeCanceled, first},
	} {
		r, changed := p.Probation.AfterProbe(first, tt.probe, policy.Result{}, seconds(20))
		require.Equal(t, tt.want, r, tt.name)
		require.Equal(t, tt.want != first, changed, tt.name)
	}
}

// ga-2026 has the rule of ga-2021 for the endpoint, which only holds, and that of namespace-2023 for the event
// subscription. Behavior safe changes each as it changes that of the other policy.
func TestBothProbations(t *testing.T) {
	t.Parallel()
	for _, behavior := range []policy.Behavior{policy.BehaviorSafe, policy.BehaviorDocumented} {
		rules := func(name string) (list []policy.Probation) {
			p := builtin(t, name).Resolve(policy.Overrides{Behavior: behavior}).Policy
			for _, scope := range p.Probation.Scopes() {
				list = append(list, p.Probation.Rule(scope))
			}
			return list
		}
		require.Empty(t, rules("ga-2018"))
		both, endpoint, subscription := rules("ga-2026"), rules("ga-2021"), rules("namespace-2023")
		require.Len(t, both, 2)
		require.Equal(t, endpoint, both[:1])
		for _, met := range everyResult()[1:] {
			outcome := builtin(t, "ga-2026").Classify(policy.KindWebhook, met)
			want, wanted := subscription[0].AfterFailure(policy.ProbationState{}, outcome, met, true, published)
			got, changed := both[1].AfterFailure(policy.ProbationState{}, outcome, met, true, published)
			require.Equal(t, want, got, "%s %s", behavior, met)
			require.Equal(t, wanted, changed)
		}
		require.Equal(t, subscription[0].Action, both[1].Action, behavior)
		require.Equal(t, subscription[0].Scope, both[1].Scope)
	}
}

// An operator may end a hold during its probe, whose result is then ignored.
func TestProbeAfterARelease(t *testing.T) {
	t.Parallel()
	for _, outcome := range []policy.Outcome{policy.OutcomeDelivered, policy.OutcomeTimedOut} {
		r, changed := builtin(t, "ga-2021").Probation.AfterProbe(policy.ProbationState{}, outcome, policy.Result{}, published)
		require.False(t, changed)
		require.Zero(t, r)
	}
}

// Attempts that began before the hold do not show the present state of the endpoint.
func TestResultsDuringAHold(t *testing.T) {
	t.Parallel()
	p := builtin(t, "ga-2021")
	held := failDifferent(p, policy.ProbationState{}, 10, published)
	for _, now := range []time.Time{held.Since, held.Until.Add(-time.Nanosecond), held.Until, held.Until.Add(time.Hour)} {
		r, changed := p.Probation.AfterFailure(held, policy.OutcomeSocketError, failure(policy.ErrorSocket), true, now)
		require.False(t, changed)
		require.Equal(t, held, r)
	}
	r, changed := p.Probation.AfterSuccess(held, held.Until.Add(-time.Nanosecond))
	require.False(t, changed)
	require.Equal(t, held, r)
	r, changed = p.Probation.AfterSuccess(held, held.Until)
	require.True(t, changed, "once the probe is due, any success is as good")
	require.Zero(t, r)
}

func TestHeldUntilASuccess(t *testing.T) {
	t.Parallel()
	r := policy.ProbationState{Since: published, Until: seconds(300), Step: 1}
	for _, tt := range []struct {
		name      string
		rest      policy.ProbationState
		now       time.Time
		held, due bool
	}{
		{"open", policy.ProbationState{}, seconds(0), false, false},
		{"failures in a row, but open", policy.ProbationState{FailuresInARow: 9}, seconds(0), false, false},
		{"as it begins", r, seconds(0), true, false},
		{"just before its end", r, seconds(300).Add(-time.Microsecond), true, false},
		{"at its end", r, seconds(300), true, true},
		{"long after, without a response to a probe", r, seconds(90_000), true, true},
	} {
		require.Equal(t, tt.held, tt.rest.Held(), tt.name)
		require.Equal(t, tt.due, tt.rest.ProbeDue(tt.now), tt.name)
	}
}

// An event subscription whose policy has no probation may share its endpoint with one whose policy has.
func TestPolicyWithoutProbationChangesNothing(t *testing.T) {
	t.Parallel()
	held := failDifferent(builtin(t, "ga-2019"), policy.ProbationState{}, 10, published)
	copied := builtin(t, "ga-2019")
	copied.Probation.Scope = policy.ProbationNone
	for _, p := range []*policy.Policy{builtin(t, "ga-2018"), copied} {
		for _, shared := range []policy.ProbationState{{FailuresInARow: 9}, held} {
			r, changed := p.Probation.AfterFailure(shared, policy.OutcomeBusy, status(503), true, seconds(9999))
			require.False(t, changed)
			require.Equal(t, shared, r)
			r, changed = p.Probation.AfterSuccess(shared, seconds(9999))
			require.False(t, changed)
			require.Equal(t, shared, r)
		}
	}
}

// A copied policy may have a trigger of several failures and holds by outcome.
func TestTriggerWithHoldsByOutcome(t *testing.T) {
	t.Parallel()
	p := builtin(t, "namespace-2023")
	p.Probation.Trigger = 3
	var r policy.ProbationState
	for i, o := range []policy.Outcome{
		policy.OutcomeBusy, policy.OutcomeGenericError, policy.OutcomeTimedOut, policy.OutcomeBadRequest,
	} {
		r, _ = p.Probation.AfterFailure(r, o, policy.Result{}, true, seconds(i))
	}
	require.Equal(t, policy.ProbationState{FailuresInARow: 2}, r,
		"what the table does not list neither counts nor breaks the row")
	r, _ = p.Probation.AfterFailure(r, policy.OutcomeSocketError, failure(policy.ErrorSocket), true, seconds(4))
	require.Equal(t, seconds(34), r.Until)
}

func TestEndsInProbation(t *testing.T) {
	t.Parallel()
	credentials := failure(policy.ErrorUnauthorized)
	ends := []policy.Result{status(401), status(403), status(404)}
	endsToo := append(slices.Clone(ends), credentials)
	forbidden := []policy.Result{status(403)}
	hold := func(p *policy.Policy) { p.Probation.Action = policy.ProbationHold }
	documented := func(p *policy.Policy) { p.Probation.Action = policy.ProbationDocumented }
	for _, tt := range []struct {
		name       string
		policy     string
		change     func(*policy.Policy)
		kind       policy.EndpointKind
		deadLetter bool
		want       []policy.Result
	}{
		{"namespace-2023, webhook", "namespace-2023", nil, policy.KindWebhook, true, endsToo},
		{"namespace-2023, webhook, no dead-letter destination", "namespace-2023", nil, policy.KindWebhook, false, endsToo},
		{
			"namespace-2023, Azure resource: 401 and 404 are retried, missing credentials are not", "namespace-2023", nil,
			policy.KindAzureResource, true,
			[]policy.Result{status(403), credentials},
		},
		{"a cell of its own for 410 is not that of 404", "namespace-2023", neverRetry410, policy.KindWebhook, true, endsToo},
		{"namespace-2023 with probation_action hold", "namespace-2023", hold, policy.KindWebhook, true, nil},
		{"ga-2021 holds", "ga-2021", nil, policy.KindWebhook, true, nil},
		{"ga-2021 with probation_action documented", "ga-2021", documented, policy.KindWebhook, true, ends},
		{"ga-2019 retries all three", "ga-2019", documented, policy.KindWebhook, true, nil},
		{"never retried with dead letters: there are", "ga-2019", neverIfDeadLetter, policy.KindWebhook, true, forbidden},
		{"never retried with dead letters: there are none", "ga-2019", neverIfDeadLetter, policy.KindWebhook, false, nil},
		{"ga-2026 retries 404", "ga-2026", nil, policy.KindWebhook, true, []policy.Result{status(401), status(403)}},
		{"ga-2026, Azure resource", "ga-2026", nil, policy.KindAzureResource, true, forbidden},
	} {
		p := builtin(t, tt.policy)
		if tt.change != nil {
			tt.change(p)
		}
		var got []policy.Result
		for _, met := range everyResult() {
			scopes := p.Probation.Scopes()
			if p.EndsInProbation(scopes[len(scopes)-1], tt.kind, met, tt.deadLetter) {
				got = append(got, met)
			}
			require.False(t, len(scopes) > 1 && p.EndsInProbation(policy.ProbationEndpoint, tt.kind, met, tt.deadLetter))
		}
		require.ElementsMatch(t, tt.want, got, tt.name)
	}
}

func neverIfDeadLetter(p *policy.Policy) {
	p.Probation.Action = policy.ProbationDocumented
	for i := range p.Cells {
		if p.Cells[i].Condition == "403" {
			p.Cells[i].Action = policy.ActionNeverIfDeadLetter
		}
	}
}

func neverRetry410(p *policy.Policy) {
	p.Cells = append(p.Cells, cell("410", policy.ActionNever))
}

// everyResult is every status from 100 to 599, every error, and no result at all.
func everyResult() []policy.Result {
	all := []policy.Result{{}}
	for code := 100; code <= 599; code++ {
		all = append(all, status(code))
	}
	for _, row := range slices.Concat(errorTable, brokerTable) {
		all = append(all, row.met)
	}
	return all
}

// everyOutcome is every outcome of an attempt, and an unknown one.
var everyOutcome = []policy.Outcome{
	"Delivered", "BadRequest", "Unauthorized", "Forbidden", "NotFound", "TimedOut", "PayloadTooLarge", "Busy",
	"SocketError", "ResolutionError", "Canceled", "GenericError", "Probation", "Aborted", "Disabled", "Full",
	"SessionQueueNotSupported", "InvalidAzureFunctionDestination", "NoSuchOutcome",
}

// FuzzProbation applies any sequence of attempts to a state. `changed` is correct. A hold begins only after the
// trigger's number of failures without a success. Its length is above zero and at most the policy's longest. Only a
// probe, or a success when the probe is due, ends it, and it can always end.
func FuzzProbation(f *testing.F) {
	f.Add(uint8(3), slices.Repeat([]byte{0, 5, 1}, 30))
	f.Add(uint8(2), append(slices.Repeat([]byte{0, 7, 1}, 10), slices.Repeat([]byte{2, 7, 255}, 12)...))
	f.Add(uint8(4), []byte{0, 7, 1, 1, 0, 1, 0, 5, 3, 2, 11, 200, 2, 0, 9, 3, 7, 1})
	f.Fuzz(func(t *testing.T, which uint8, course []byte) {
		rules := []policy.Probation{builtin(t, "ga-2018").Probation}
		for _, p := range policy.Builtins() {
			for _, scope := range p.Probation.Scopes() {
				rules = append(rules, p.Probation.Rule(scope))
			}
		}
		rule := &rules[int(which)%len(rules)]
		m := probationModel{t: t, rule: rule, now: published, longest: longestHold(rule)}
		for len(course) >= 3 {
			m.now = m.now.Add(time.Duration(course[2]) * time.Second)
			m.step(course[0]%4, everyOutcome[int(course[1])%len(everyOutcome)])
			course = course[3:]
		}
		if m.rest.Held() {
			r, changed := rule.AfterSuccess(m.rest, m.rest.Until)
			require.True(t, changed)
			require.Zero(t, r)
		}
	})
}

func longestHold(rule *policy.Probation) time.Duration {
	longest := rule.Max
	if holds := slices.Collect(maps.Values(rule.ByOutcome)); len(holds) > 0 {
		longest = slices.Max(holds)
	}
	return time.Duration(longest)
}

type probationModel struct {
	t        *testing.T
	rule     *policy.Probation
	now      time.Time
	longest  time.Duration
	rest     policy.ProbationState
	failures int // since the last success or hold
}

func (m *probationModel) step(what byte, o policy.Outcome) {
	before := m.rest
	var changed bool
	switch what {
	case 0, 3:
		m.failures++
		m.rest, changed = m.rule.AfterFailure(before, o, policy.Result{}, what == 0, m.now)
		require.True(m.t, !before.Held() || m.rest == before, "a failure beside the probe changes no hold")
	case 1:
		m.rest, changed = m.rule.AfterSuccess(before, m.now)
		require.True(m.t, !m.rest.Held() || m.now.Before(m.rest.Until) || m.rule.Scope == policy.ProbationNone)
	case 2:
		m.rest, changed = m.rule.AfterProbe(before, o, policy.Result{}, m.now)
		require.True(m.t, before.Held() || m.rest == before)
		require.True(m.t, o != policy.OutcomeDelivered || !m.rest.Held())
	}
	require.Equal(m.t, m.rest != before, changed)
	m.check(before)
}

func (m *probationModel) check(before policy.ProbationState) {
	r := m.rest
	if !r.Held() {
		require.Equal(m.t, policy.ProbationState{FailuresInARow: r.FailuresInARow}, r)
		require.LessOrEqual(m.t, r.FailuresInARow, max(m.rule.Trigger-1, 0))
		if r == (policy.ProbationState{}) {
			m.failures = 0
		}
		return
	}
	require.NotEqual(m.t, policy.ProbationNone, m.rule.Scope)
	if r != before {
		require.Greater(m.t, r.Until, m.now, "a hold of no length")
		require.LessOrEqual(m.t, r.Until.Sub(m.now), m.longest)
		require.Equal(m.t, before.Step+1, r.Step)
	}
	if !before.Held() {
		require.Equal(m.t, m.now, r.Since)
		require.GreaterOrEqual(m.t, m.failures, m.rule.Trigger)
		require.Equal(m.t, m.rule.Trigger, r.FailuresInARow)
	}
}
