package policy

import "strconv"

// Outcome names the result of one delivery attempt as Event Grid's lastDeliveryOutcome does (Microsoft, Event Grid dead
// letter properties). It is the same in JSON, SQL and logs.
type Outcome string

// The outcomes. Classify returns none of those below OutcomeGenericError: they are for attempts without a response, or
// for causes that only Event Grid's own destinations report and that the probation table lists.
const (
	OutcomeDelivered       Outcome = "Delivered"       // the endpoint accepted the event
	OutcomeBadRequest      Outcome = "BadRequest"      // 400
	OutcomeUnauthorized    Outcome = "Unauthorized"    // 401, or postrider got no credentials
	OutcomeForbidden       Outcome = "Forbidden"       // 403
	OutcomeNotFound        Outcome = "NotFound"        // 404
	OutcomeTimedOut        Outcome = "TimedOut"        // 408, or no response within the ack timeout
	OutcomePayloadTooLarge Outcome = "PayloadTooLarge" // 413
	OutcomeBusy            Outcome = "Busy"            // 429 and 503
	OutcomeSocketError     Outcome = "SocketError"     // connection refused, reset, or TLS failed
	OutcomeResolutionError Outcome = "ResolutionError" // the host name has no address
	OutcomeCanceled        Outcome = "Canceled"        // postrider canceled the request
	OutcomeGenericError    Outcome = "GenericError"    // every other response, and an endpoint that must not be called
	OutcomeProbation       Outcome = "Probation"       // due during probation: no request was sent
	OutcomeAborted         Outcome = "Aborted"         // the attempt was interrupted without a response

	OutcomeDisabled                        Outcome = "Disabled"                        // probation table only
	OutcomeFull                            Outcome = "Full"                            // probation table only
	OutcomeInvalidAzureFunctionDestination Outcome = "InvalidAzureFunctionDestination" // probation table only
)

// ErrorKind says why an attempt has no HTTP response; "" = it has one.
type ErrorKind string

// The kinds of error.
const (
	ErrorNone         ErrorKind = ""
	ErrorTimeout      ErrorKind = "timeout"      // no response within the ack timeout
	ErrorCanceled     ErrorKind = "canceled"     // postrider canceled the request
	ErrorSocket       ErrorKind = "socket"       // connection refused, reset, unreachable, TLS failed
	ErrorDNS          ErrorKind = "dns"          // the host name could not be resolved
	ErrorUnauthorized ErrorKind = "unauthorized" // postrider got no credentials for the request
	ErrorArgument     ErrorKind = "argument"     // the endpoint's URL is malformed or its address must not be called
)

var errorOutcomes = map[ErrorKind]Outcome{
	ErrorTimeout:      OutcomeTimedOut,
	ErrorCanceled:     OutcomeCanceled,
	ErrorSocket:       OutcomeSocketError,
	ErrorDNS:          OutcomeResolutionError,
	ErrorUnauthorized: OutcomeUnauthorized,
	ErrorArgument:     OutcomeGenericError,
}

// EndpointKind is the column of Event Grid's status tables: since 2020 they retry 401 and 404 of Azure's own endpoints,
// but not of others.
type EndpointKind string

// The kinds of endpoint.
const (
	KindWebhook       EndpointKind = "webhook"
	KindAzureResource EndpointKind = "azure-resource"
)

// Result is the result of one attempt. One of the two fields is set.
type Result struct {
	Status int       // HTTP status of the response
	Err    ErrorKind // why there is no response
}

// String returns the condition of the cells for r: "503", "timeout". The zero Result is "other".
func (r Result) String() string {
	var buf [20]byte
	return string(r.appendTo(buf[:0]))
}

// appendTo writes the condition without allocating: Cell compares it with every cell for every attempt.
func (r Result) appendTo(buf []byte) []byte {
	switch {
	case r.Err != ErrorNone:
		return append(buf, r.Err...)
	case r.Status == 0:
		return append(buf, conditionOther...)
	default:
		return strconv.AppendInt(buf, int64(r.Status), 10)
	}
}

// ParseResult is the inverse of Result.String. A text that is not a status is an error kind; "other" and "" are the
// zero Result.
func ParseResult(condition string) Result {
	if status, err := strconv.Atoi(condition); err == nil {
		return Result{Status: status}
	}
	if condition == conditionOther {
		return Result{}
	}
	return Result{Err: ErrorKind(condition)}
}

// Classify returns OutcomeDelivered if the policy's cell calls the result a success, otherwise the outcome of its
// status or error. Event Grid documents the outcomes but not which status has which; a status that fits none is
// OutcomeGenericError. 410 (Gone) is not NotFound: that starts a probation of 5 minutes under namespace-2023, whose
// table retries 410 after 10 s.
func (p *Policy) Classify(kind EndpointKind, r Result) Outcome {
	if p.Cell(kind, r).Action == ActionSuccess {
		return OutcomeDelivered
	}
	if r.Err == ErrorNone {
		return statusOutcome(r.Status)
	}
	if o, ok := errorOutcomes[r.Err]; ok {
		return o
	}
	return OutcomeGenericError
}

func statusOutcome(status int) Outcome {
	switch status {
	case 400:
		return OutcomeBadRequest
	case 401:
		return OutcomeUnauthorized
	case 403:
		return OutcomeForbidden
	case 404:
		return OutcomeNotFound
	case 408:
		return OutcomeTimedOut
	case 413:
		return OutcomePayloadTooLarge
	case 429, 503:
		return OutcomeBusy
	default:
		return OutcomeGenericError
	}
}

// Reason says why a delivery ended without success. It is Event Grid's deadLetterReason, for dead-lettered, dropped and
// canceled deliveries, spelled the same in JSON and SQL.
type Reason string

// The reasons. Event Grid documents MaxDeliveryAttemptsExceeded; the Undeliverable… words are those of real dead
// letters, and TimeToLiveExceeded is formed after them. The others are ours.
const (
	ReasonMaxDeliveryAttemptsExceeded Reason = "MaxDeliveryAttemptsExceeded"
	ReasonTimeToLiveExceeded          Reason = "TimeToLiveExceeded"
	ReasonHTTPBadRequest              Reason = "UndeliverableDueToHttpBadRequest"
	ReasonClientError                 Reason = "UndeliverableDueToClientError"
	ReasonProbation                   Reason = "UndeliverableDueToProbationCausedByClientError"
	ReasonTooManyReruns               Reason = "TooManyReruns" // interrupted, or failed inside postrider, 20 times
	ReasonEventSubscriptionDeleted    Reason = "EventSubscriptionDeleted"
	ReasonEventSubscriptionExpired    Reason = "EventSubscriptionExpired" // its expirationTimeUtc has passed
	ReasonEventMissing                Reason = "EventMissing"             // the event's row was deleted by hand
	ReasonCanceledByOperator          Reason = "CanceledByOperator"
	ReasonDeadLetteredByOperator      Reason = "DeadLetteredByOperator"
	ReasonEventErased                 Reason = "EventErased"
)

var reasonSentences = map[Reason]string{
	ReasonMaxDeliveryAttemptsExceeded: "Maximum delivery attempts was exceeded.",
	ReasonTimeToLiveExceeded:          "Event time to live was exceeded.",
	ReasonHTTPBadRequest:              "Undeliverable due to HTTP bad request.",
	ReasonClientError:                 "Undeliverable due to client error.",
	ReasonProbation:                   "Undeliverable due to probation caused by client error.",
	ReasonTooManyReruns:               "The delivery attempt was interrupted too many times.",
	ReasonEventSubscriptionDeleted:    "The event subscription was deleted.",
	ReasonEventSubscriptionExpired:    "The event subscription expired.",
	ReasonEventMissing:                "The event was removed from the database.",
	ReasonCanceledByOperator:          "The delivery was canceled.",
	ReasonDeadLetteredByOperator:      "The delivery was dead-lettered by an operator.",
	ReasonEventErased:                 "The event was erased.",
}

// Sentence returns the reason as a sentence, as dead letters of namespace topics have it. The first is Microsoft's own
// (Event Grid namespace push delivery and retry, 2023-11); the others are formed after it.
func (r Reason) Sentence() string {
	if s, ok := reasonSentences[r]; ok {
		return s
	}
	return string(r)
}
