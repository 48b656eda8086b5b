package policy

import (
	"slices"
	"time"
)

const (
	second = Seconds(time.Second)
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
)

// Builtins returns copies of the six built-in policies, oldest first. Each is one documented state of Azure Event
// Grid. Comments explain the values that its page leaves open or contradicts.
func Builtins() []Policy {
	return []Policy{preview2017(), ga2018(), ga2019(), ga2021(), namespace2023(), ga2026()}
}

// Builtin returns a copy of the built-in policy of that name, and whether there is one.
func Builtin(name string) (Policy, bool) {
	for _, p := range Builtins() {
		if p.Name == name {
			return p, true
		}
	}
	return Policy{}, false
}

// classic has the common settings of the policies up to 2021. The pages say "a small randomization" of all intervals
// without a size: 10 % of the step, 3 s at most. The ranges are those of Event Grid's retryPolicy property. Dead
// letters are off unless a destination is set; the first page does not have them.
func classic(name, source string) Policy {
	return Policy{
		Name: name, Source: source, BuiltIn: true,
		Basis: BasisGap, Tail: hour,
		Steps: []Seconds{
			10 * second, 30 * second, minute, 5 * minute, 10 * minute, 30 * minute, hour,
		},
		JitterFraction: 0.1, JitterCap: 3 * second,
		Expiry:               ExpiryAtTTL,
		TTL:                  Range[Minutes]{Default: Minutes(day), Least: Minutes(minute), Most: Minutes(day)},
		MaxAttempts:          Range[int]{Default: 30, Least: 1, Most: 30},
		RetryAfterCap:        hour,
		RetryTransportErrors: true,
		DeadLetterDefault:    DeadLetterNone,
		Probation:            Probation{Scope: ProbationNone, Action: ProbationHold},
	}
}

// preview2017 has two hours to live, no limit of attempts by default, and no dead letters: events that are not
// delivered in time are dropped. The last step on the page, one hour, repeats.
func preview2017() Policy {
	p := classic("preview-2017", "Microsoft, Event Grid message delivery and retry, 2017-08-11")
	p.AckTimeout = minute
	p.TTL.Default = Minutes(2 * hour)
	p.MaxAttempts.Default = 0
	p.Cells = bothKinds(
		on(ActionSuccess, 0, "200", "202"),
		on(ActionRetry, 0, "400", "401", "404", "408", "414", "500", "503", "504", conditionOther),
		on(ActionRetry, 0, errorConditions...),
	)
	return p
}

// ga2018 dead-letters what can "never be delivered" without naming a status; real dead letters of that summer only have
// 400. Without a destination it is retried like the others.
func ga2018() Policy {
	p := classic("ga-2018", "Microsoft, Event Grid message delivery and retry, 2018-08-08")
	p.AckTimeout = minute
	p.Cells = bothKinds(
		on(ActionSuccess, 0, "200", "202"),
		on(ActionNeverIfDeadLetter, 0, "400"),
		on(ActionRetry, 0, "401", "404", "408", "414", "429", "500", "503", "504", conditionOther),
		on(ActionRetry, 0, errorConditions...),
	)
	return p
}

// ga2019 has the first table of waits by status. Its text dead-letters 400 and 413 at once, its table retries them:
// here the first applies with a destination, the second without.
func ga2019() Policy {
	p := classic("ga-2019", "Microsoft, Event Grid message delivery and retry, 2019-05-15")
	since2019(&p)
	p.Cells = bothKinds(
		success2019,
		on(ActionNeverIfDeadLetter, 5*minute, "400"),
		on(ActionRetry, 5*minute, "401", "403", "404"),
		on(ActionNeverIfDeadLetter, 10*second, "413"),
		waits2019,
		on(ActionRetry, 10*second, errorConditions...),
	)
	return p
}

// ga2021 retries at 3 h, 6 h and then every 12 h "up to 24 hours". It checks the time to live only at the next attempt,
// and is the first to distinguish Azure's own endpoints from others.
func ga2021() Policy {
	p := classic("ga-2021", "Microsoft, Event Grid message delivery and retry, 2020-10-29")
	since2019(&p)
	p.Steps = append(p.Steps, 3*hour, 6*hour)
	p.Tail = 12 * hour
	p.Expiry = ExpiryNextAttempt
	p.Batching = true
	failures := on(ActionRetry, 10*second, errorConditions...)
	p.Cells = slices.Concat(
		cells(KindWebhook, success2019, on(ActionNever, 0, "400", "401", "403", "404", "413"), waits2019, failures),
		cells(KindAzureResource, success2019, on(ActionNever, 0, "400", "403", "413"),
			on(ActionRetry, 5*minute, "401", "404"), waits2019, failures),
	)
	return p
}

// since2019 sets what ga-2019 introduced and ga-2021 kept: 30 s for the response, late success up to three minutes, no
// retry after 24 hours, dead letters exported after five minutes and for four hours, and delayed delivery after the
// first ten events have failed. No page says how long the delay is: 5 min, doubled up to 4 h, are ours.
func since2019(p *Policy) {
	p.AckTimeout = 30 * second
	p.LateResponseWindow = 3 * minute
	p.RetryWindow = OptionalSeconds(day)
	p.DeadLetterDelay = 5 * minute
	p.DeadLetterExportWindow = 4 * hour
	p.Probation = Probation{
		Scope: ProbationEndpoint, Trigger: 10, First: 5 * minute, Max: 4 * hour, Action: ProbationHold,
	}
}

// namespace2023 is the push delivery of namespace topics. Its example (20 minutes, 10 attempts) lists 0 s, 10 s, 30 s,
// 1 min, 5 min, 10 min, 15 min, 20 min and calls the last one #8: these are offsets from the first attempt, not waits.
// Its list of errors "never retried" includes timeouts and broken sockets. BehaviorDocumented takes it literally;
// BehaviorSafe retries them after their MinDelay, because a receiver that restarts refuses connections. 413 is missing
// in that list, but the page's text and table end it; 401 and 404 are in the list, but the table retries them for
// Azure's own endpoints. The list names no response of a broker: those are retried as all others.
func namespace2023() Policy {
	p := classic("namespace-2023", "Microsoft, Event Grid namespace push delivery and retry, 2023-11")
	since2019(&p)
	p.LateResponseWindow = 0
	p.Basis = BasisOffset
	p.Steps = []Seconds{10 * second, 30 * second, minute, 5 * minute}
	p.Tail = 5 * minute
	p.RetryWindow = 0
	p.JitterFraction, p.JitterCap = 0, 0
	p.Expiry = ExpiryNextAttempt
	p.TTL.Default, p.TTL.Most = Minutes(7*day), Minutes(7*day)
	p.MaxAttempts.Default, p.MaxAttempts.Most = 10, 10
	p.RetryTransportErrors = false
	p.Batching = true
	p.Probation = Probation{
		Scope: ProbationEventSubscription, Trigger: 1, Action: ProbationDocumented, ByOutcome: holdsByOutcome(),
	}
	failures := slices.Concat(
		on(ActionNever, 10*second, transportErrors...), on(ActionRetry, 10*second, brokerResponses...))
	p.Cells = slices.Concat(
		cells(KindWebhook, success2019, on(ActionNever, 0, "400", "401", "403", "404", "413", "414"), waits2019, failures),
		cells(KindAzureResource, success2019, on(ActionNever, 0, "400", "403", "413", "414"),
			on(ActionRetry, 5*minute, "401", "404"), waits2019, failures),
	)
	return p
}

// ga2026 is the page of ga-2021 in 2026. 404 has left the webhook's list of statuses that are never retried, and the
// table gives it no wait of its own. Beside the delayed delivery of the endpoint, the page has the probation table of
// namespace2023 for the event subscription, and says that probation may end events without an attempt. No copy of the
// page says how long delayed delivery lasts, nor how it meets probation: here the endpoint's hold comes first.
func ga2026() Policy {
	p := ga2021()
	p.Name, p.Source = "ga-2026", "Microsoft, Event Grid message delivery and retry, 2026-02-09"
	p.Cells = slices.DeleteFunc(p.Cells, func(c Cell) bool {
		return c.EndpointKind == KindWebhook && c.Condition == "404"
	})
	p.Probation.Scope, p.Probation.Action = ProbationBoth, ProbationDocumented
	p.Probation.ByOutcome = holdsByOutcome()
	return p
}

// holdsByOutcome is the probation table of the namespace page, and of the page of ga2026. Other outcomes start none.
func holdsByOutcome() Holds {
	return Holds{
		OutcomeBusy:                            10 * second,
		OutcomeTimedOut:                        10 * second,
		OutcomeSocketError:                     30 * second,
		OutcomeNotFound:                        5 * minute,
		OutcomeResolutionError:                 5 * minute,
		OutcomeDisabled:                        5 * minute,
		OutcomeFull:                            5 * minute,
		OutcomeUnauthorized:                    5 * minute,
		OutcomeForbidden:                       5 * minute,
		OutcomeInvalidAzureFunctionDestination: 10 * minute,
	}
}

var (
	transportErrors = []string{
		string(ErrorTimeout), string(ErrorCanceled), string(ErrorSocket),
		string(ErrorDNS), string(ErrorUnauthorized), string(ErrorArgument),
	}
	brokerResponses = []string{string(ErrorFull), string(ErrorDisabled), string(ErrorSession)}
	errorConditions = slices.Concat(transportErrors, brokerResponses)
	success2019     = on(ActionSuccess, 0, "200", "201", "202", "203", "204")
	waits2019       = slices.Concat(
		on(ActionRetry, 2*minute, "408"),
		on(ActionRetry, 30*second, "503"),
		on(ActionRetry, 10*second, conditionOther),
	)
)

// on returns the cells of several conditions with the same action; cells sets their endpoint kind.
func on(action Action, minDelay Seconds, conditions ...string) []Cell {
	list := make([]Cell, 0, len(conditions))
	for _, condition := range conditions {
		list = append(list, Cell{Condition: condition, Action: action, MinDelay: minDelay})
	}
	return list
}

func cells(kind EndpointKind, groups ...[]Cell) []Cell {
	list := slices.Concat(groups...)
	for i := range list {
		list[i].EndpointKind = kind
	}
	return list
}

func bothKinds(groups ...[]Cell) []Cell {
	return slices.Concat(cells(KindWebhook, groups...), cells(KindAzureResource, groups...))
}
