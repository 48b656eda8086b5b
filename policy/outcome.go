package policy

import "strconv"

// Outcome is the word for what one delivery attempt came to, spelled as Event Grid spells lastDeliveryOutcome
// (Microsoft, Event Grid dead letter properties). It is the same word in JSON, SQL and logs.
type Outcome string

// The outcomes. Those below OutcomeGenericError are never picked by Classify: they name turns without an answer of
// the endpoint's, or causes that only Event Grid's own destinations report and that the probation table lists.
const (
	OutcomeDelivered       Outcome = "Delivered"       // the endpoint took the event
	OutcomeBadRequest      Outcome = "BadRequest"      // 400
	OutcomeUnauthorized    Outcome = "Unauthorized"    // 401, or our own credentials were refused
	OutcomeForbidden       Outcome = "Forbidden"       // 403
	OutcomeNotFound        Outcome = "NotFound"        // 404
	OutcomeTimedOut        Outcome = "TimedOut"        // 408, or no answer within the ack timeout
	OutcomePayloadTooLarge Outcome = "PayloadTooLarge" // 413
	OutcomeBusy            Outcome = "Busy"            // 429 and 503
	OutcomeSocketError     Outcome = "SocketError"     // connection refused, reset, or TLS failed
	OutcomeResolutionError Outcome = "ResolutionError" // the host name has no address
	OutcomeCanceled        Outcome = "Canceled"        // the call was given up on our side
	OutcomeGenericError    Outcome = "GenericError"    // every other answer, and an endpoint that may not be called
	OutcomeProbation       Outcome = "Probation"       // the turn came during probation: no call was made
	OutcomeAborted         Outcome = "Aborted"         // the attempt was interrupted and left no answer

	OutcomeDisabled                        Outcome = "Disabled"                        // probation table only
	OutcomeFull                            Outcome = "Full"                            // probation table only
	OutcomeInvalidAzureFunctionDestination Outcome = "InvalidAzureFunctionDestination" // probation table only
)

// ErrorKind says why an attempt has no HTTP answer. The empty kind means that it has one.
type ErrorKind string

// The kinds of error. A TLS failure is a socket error; a malformed URL or a refused address is an argument error.
const (
	ErrorNone         ErrorKind = ""
	ErrorTimeout      ErrorKind = "timeout"      // no answer within the ack timeout
	ErrorCanceled     ErrorKind = "canceled"     // the call was given up on our side
	ErrorSocket       ErrorKind = "socket"       // refused, reset, unreachable, TLS
	ErrorDNS          ErrorKind = "dns"          // the host name could not be resolved
	ErrorUnauthorized ErrorKind = "unauthorized" // credentials for the call could not be had
	ErrorArgument     ErrorKind = "argument"     // the endpoint's URL is malformed or its address may not be called
)

var errorOutcomes = map[ErrorKind]Outcome{
	ErrorTimeout:      OutcomeTimedOut,
	ErrorCanceled:     OutcomeCanceled,
	ErrorSocket:       OutcomeSocketError,
	ErrorDNS:          OutcomeResolutionError,
	ErrorUnauthorized: OutcomeUnauthorized,
	ErrorArgument:     OutcomeGenericError,
}

// EndpointKind tells the two columns of Event Grid's status tables apart: since 2020 an endpoint of Azure's own is
// given another chance where a stranger's is not (401 and 404).
type EndpointKind string

// The kinds of endpoint.
const (
	KindWebhook       EndpointKind = "webhook"
	KindAzureResource EndpointKind = "azure-resource"
)

// Result is what one attempt met. Exactly one of the two fields is set.
type Result struct {
	Status int       // HTTP status of the answer
	Err    ErrorKind // why there is no answer
}

// String returns the condition a policy's cells are looked up by: "503", "timeout". The zero Result is "other".
func (r Result) String() string {
	var buf [20]byte
	return string(r.appendTo(buf[:0]))
}

// appendTo writes the condition without allocating: Cell compares it with every cell of a policy, for every attempt.
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

// ParseResult is the inverse of Result.String. Text that is no status is an error kind; "other" and "" are the zero
// Result.
func ParseResult(condition string) Result {
	if status, err := strconv.Atoi(condition); err == nil {
		return Result{Status: status}
	}
	if condition == conditionOther {
		return Result{}
	}
	return Result{Err: ErrorKind(condition)}
}

// Classify names what an attempt came to: OutcomeDelivered when the policy's cell calls the result a success, else the
// word for its status or error. Event Grid documents the words but not which status has which; where it is silent and
// no status fits the word, the outcome is OutcomeGenericError. 410 (Gone) is not NotFound: NotFound starts a probation
// of 5 minutes under namespace-2023, whose table retries 410 after 10 s.
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
