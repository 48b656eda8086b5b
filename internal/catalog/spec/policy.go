package spec

import "postrider/policy"

// Sections of a retry policy's settings.
const (
	policySection = "Policy"
	Schedule      = "Schedule"
	Outcomes      = "Outcomes"
	Probation     = "Probation"
)

// Policy are the settings of a retry policy.
var Policy = []Setting{
	{
		Name: "source", Section: policySection, Label: "Source", Kind: Text, Max: 500, Default: "empty",
		Help: "Where the values of this policy come from.",
	},
	{
		Name: "ackTimeoutInSeconds", Section: Schedule, Label: "Response timeout (s)", Kind: Number, Min: 1, Max: 230,
		Help: "Seconds that an endpoint has for its response.", Default: "30",
	},
	{
		Name: "lateResponseWindowInSeconds", Section: Schedule, Label: "Late success (s)", Kind: Number, Max: 3600,
		Help: "Seconds after the request in which a late success cancels the next attempt. 0 = never; otherwise at least " +
			"ackTimeoutInSeconds.", Default: "0",
	},
	{
		Name: "basis", Section: Schedule, Label: "Basis", Kind: Choice, Default: "gap",
		Choices: []string{string(policy.BasisGap), string(policy.BasisOffset)},
		Help:    "gap: a step is the wait after a failed attempt. offset: it is counted from the first attempt.",
	},
	{
		Name: "stepsInSeconds", Section: Schedule, Label: "Backoff steps (s)", Kind: List, Min: 1, Max: 604800,
		Help:    "Backoff steps of the retry schedule, 1 to 100 entries. Steps of basis offset must ascend.",
		Default: "10, 30, 60, 300, 600, 1800, 3600, 10800, 21600", Example: "10, 30, 60, 300",
	},
	{
		Name: "tailInSeconds", Section: Schedule, Label: "Last step (s)", Kind: Number, Min: 1, Max: 604800,
		Help: "Step that repeats after the schedule is used up.", Default: "43200",
	},
	{
		Name: "retryWindowInSeconds", Section: Schedule, Label: "Retry window (s)", Kind: Number, Max: 2592000,
		Help: "No attempt is made later than this after publishing. 0 = no limit.", Default: "no limit",
	},
	{
		Name: "jitterFraction", Section: Schedule, Label: "Jitter fraction", Kind: Number, Max: 0.5,
		Help: "Most jitter that is added to a step, as a fraction of it.", Default: "0.1",
	},
	{
		Name: "jitterCapInSeconds", Section: Schedule, Label: "Jitter cap (s)", Kind: Number, Max: 3600,
		Help: "Most jitter that is added to a step, in seconds.", Default: "3",
	},
	{
		Name: "maxDeliveryAttempts.default", Section: Limits, Label: "Default attempts", Kind: Whole, Max: 1000,
		Help: "Limit of attempts for event subscriptions that set none. 0 = no limit.", Default: "no limit",
	},
	{
		Name: "maxDeliveryAttempts.least", Section: Limits, Label: "Fewest attempts", Kind: Whole, Min: 1, Max: 1000,
		Help: "Lowest limit of attempts that an event subscription may set.", Default: "1",
	},
	{
		Name: "maxDeliveryAttempts.most", Section: Limits, Label: "Most attempts", Kind: Whole, Min: 1, Max: 1000,
		Help: "Highest limit of attempts that an event subscription may set.", Default: "30, or the default if it is higher",
	},
	{
		Name: "eventTimeToLiveInMinutes.default", Section: Limits, Label: "Default lifetime (min)", Kind: Whole, Min: 1,
		Max: 43200, Help: "Time to live for event subscriptions that set none.", Default: "1440",
	},
	{
		Name: "eventTimeToLiveInMinutes.least", Section: Limits, Label: "Shortest lifetime (min)", Kind: Whole, Min: 1,
		Max: 43200, Help: "Shortest time to live that an event subscription may set.", Default: "1",
	},
	{
		Name: "eventTimeToLiveInMinutes.most", Section: Limits, Label: "Longest lifetime (min)", Kind: Whole, Min: 1,
		Max: 43200, Help: "Longest time to live that an event subscription may set.",
		Default: "1440, or the default if it is longer",
	},
	{
		Name: "expiry", Section: Limits, Label: "Expiry", Kind: Choice, Default: "at_ttl",
		Choices: []string{string(policy.ExpiryAtTTL), string(policy.ExpiryNextAttempt)},
		Help:    "at_ttl: a delivery ends when its time to live has passed. next_attempt: when its next attempt is due.",
	},
	{
		Name: "batching", Section: Limits, Label: "Allow batches", Kind: Switch, Default: "true",
		Help: "Event subscriptions may set more than one event per batch.",
	},
	{
		Name: "deadLetterDefault", Section: Outcomes, Label: "Dead-letter default", Kind: Choice, Default: "rows",
		Choices: []string{policy.DeadLetterRows, policy.DeadLetterNone},
		Help: "Under behavior documented, without a dead-letter destination: rows keeps a dead letter, none drops the " +
			"event.",
	},
	{
		Name: "deadLetterDelayInSeconds", Section: Outcomes, Label: "Export delay (s)", Kind: Number, Max: 86400,
		Help: "Seconds from the last attempt to the export of the dead letter.", Default: "300",
	},
	{
		Name: "deadLetterExportWindowInSeconds", Section: Outcomes, Label: "Export window (s)", Kind: Number, Max: 172800,
		Help: "Seconds for which the export to an unavailable location is retried.", Default: "14400",
	},
	{
		Name: "honorRetryAfter", Section: Outcomes, Label: "Honor Retry-After", Kind: Switch, Default: "false",
		Help: "Under behavior documented: an endpoint's Retry-After header defers the next attempt.",
	},
	{
		Name: "retryAfterCapInSeconds", Section: Outcomes, Label: "Retry-After cap (s)", Kind: Number, Min: 1, Max: 604800,
		Help: "Longest wait that a Retry-After header can cause.", Default: "3600",
	},
	{
		Name: "retryTransportErrors", Section: Outcomes, Label: "Retry transport errors", Kind: Switch, Default: "true",
		Help: "Under behavior documented: retry if there was no response, even if the status table forbids it.",
	},
	{
		Name: "statusTable", Section: Outcomes, Label: "Status table", Kind: JSON, Default: "that of ga-2021",
		Help: "For each kind of endpoint an entry for every status or error with a rule of its own: at least one with the " +
			"action success, and one with the condition other.",
	},
	{
		Name: "probation.scope", Section: Probation, Label: "Scope", Kind: Choice, Default: "endpoint",
		Choices: []string{
			string(policy.ProbationNone), string(policy.ProbationEndpoint), string(policy.ProbationEventSubscription),
			string(policy.ProbationBoth),
		},
		Help: "What a probation (the circuit breaker) holds. none: no other setting of probation may be set. both: " +
			"trigger, firstInSeconds and maxInSeconds apply to the endpoint, byOutcome to the event subscription.",
	},
	{
		Name: "probation.trigger", Section: Probation, Label: "Failures", Kind: Whole, Max: 1000,
		Help: "Consecutive failures of different events that start a probation.", Default: "10; 0 if scope is none",
	},
	{
		Name: "probation.firstInSeconds", Section: Probation, Label: "First hold (s)", Kind: Number, Max: 86400,
		Help:    "First hold. It doubles each time a probe fails.",
		Default: "300; 0 if scope is none, or byOutcome is set and scope is not both",
	},
	{
		Name: "probation.maxInSeconds", Section: Probation, Label: "Longest hold (s)", Kind: Number, Max: 86400,
		Help: "Longest hold, at least the first.", Default: "14400; 0 without a first hold",
	},
	{
		Name: "probation.action", Section: Probation, Label: "Probation action", Kind: Choice, Default: "hold",
		Choices: []string{string(policy.ProbationHold), string(policy.ProbationDocumented)},
		Help: "Under behavior documented. hold: events wait until the endpoint recovers. documented: they may be " +
			"dead-lettered without an attempt, if scope is both only by byOutcome.",
	},
	{
		Name: "probation.byOutcome", Section: Probation, Label: "Hold by outcome", Kind: JSON, Example: `{"Busy": 60}`,
		Help: "Seconds to hold by outcome, instead of the first and the longest hold: other outcomes start no probation. " +
			"If scope is both, of the event subscription, from the first failure on: other outcomes only count for the " +
			"endpoint.",
		Default: "the outcome does not matter; required if scope is both",
	},
}
