package policy

import "strconv"

// Outcome names the result of one delivery attempt as Event Grid's lastDeliveryOutcome does (Microsoft, Event Grid dead
// letter properties). It is the same in JSON, SQL and logs.
type Outcome string

// The outcomes. Classify returns none from OutcomeProbation to OutcomeRejected: they are for attempts without a request
// or a response, and for consumers. No attempt has OutcomeDelivering or OutcomeInvalidAzureFunctionDestination, which
// are words of Event Grid.
const (
	OutcomeDelivered       Outcome = "Delivered"       // the endpoint accepted the event
	OutcomeBadRequest      Outcome = "BadRequest"      // 400
	OutcomeUnauthorized    Outcome = "Unauthorized"    // 401, or no credentials for the request
	OutcomeForbidden       Outcome = "Forbidden"       // 403
	OutcomeNotFound        Outcome = "NotFound"        // 404
	OutcomeTimedOut        Outcome = "TimedOut"        // 408, or no response within the ack timeout
	OutcomePayloadTooLarge Outcome = "PayloadTooLarge" // 413
	OutcomeBusy            Outcome = "Busy"            // 429 and 503
	OutcomeSocketError     Outcome = "SocketError"     // connection refused, reset, or TLS failed
	OutcomeResolutionError Outcome = "ResolutionError" // the host name has no address
	OutcomeCanceled        Outcome = "Canceled"        // the request was canceled by postrider
	OutcomeGenericError    Outcome = "GenericError"    // every other response; an endpoint that must not be called
	OutcomeProbation       Outcome = "Probation"       // due during probation: no request was sent
	OutcomeAborted         Outcome = "Aborted"         // the attempt was interrupted without a response

	OutcomeAcknowledged Outcome = "Acknowledged" // a consumer received the event and acknowledged it
	OutcomeReleased     Outcome = "Released"     // a consumer received the event and released it
	OutcomeExpired      Outcome = "Expired"      // a consumer received the event and its lock expired
	OutcomeRejected     Outcome = "Rejected"     // a consumer received the event and rejected it

	OutcomeDisabled Outcome = "Disabled" // the broker's queue, topic or event hub does not accept messages
	OutcomeFull     Outcome = "Full"     // the broker's queue, topic or event hub has reached its size or another limit
	// a Service Bus queue or topic with sessions received an event without a session id
	OutcomeSessionQueueNotSupported Outcome = "SessionQueueNotSupported"
	// of Event Grid only: an attempt in progress, which has no outcome here
	OutcomeDelivering Outcome = "Delivering"
	// of Event Grid's own destinations only
	OutcomeInvalidAzureFunctionDestination Outcome = "InvalidAzureFunctionDestination"
)

// Success reports whether the event was delivered.
func (o Outcome) Success() bool { return o == OutcomeDelivered || o == OutcomeAcknowledged }

var outcomeSentences = map[Outcome]string{
	OutcomeAcknowledged: "Event was acknowledged.",
	OutcomeReleased:     "Event was released.",
	OutcomeExpired:      "Event was not acknowledged nor rejected.",
	OutcomeRejected:     "Event was rejected.",
}

// Sentence returns what a consumer did as a sentence, as dead letters of namespace topics have it, and other outcomes
// as they are. That of OutcomeExpired is Microsoft's own (Event Grid namespace push delivery and retry, 2023-11); the
// others are formed after it.
func (o Outcome) Sentence() string {
	if s, ok := outcomeSentences[o]; ok {
		return s
	}
	return string(o)
}

// ErrorKind says why an attempt has no HTTP response, or how a broker rejected the event; "" = a status says it.
type ErrorKind string

// The kinds of error. The last three are responses of a broker, see Result.Responded.
const (
	ErrorNone         ErrorKind = ""
	ErrorTimeout      ErrorKind = "timeout"      // no response within the ack timeout
	ErrorCanceled     ErrorKind = "canceled"     // the request was canceled by postrider
	ErrorSocket       ErrorKind = "socket"       // connection refused, reset or unreachable, or TLS failed
	ErrorDNS          ErrorKind = "dns"          // the host name could not be resolved
	ErrorUnauthorized ErrorKind = "unauthorized" // no credentials for the request, such as a missing OAuth token
	ErrorArgument     ErrorKind = "argument"     // the endpoint's URL is malformed or its address must not be called
	ErrorFull         ErrorKind = "full"         // the broker's queue, topic or event hub has reached a limit
	ErrorDisabled     ErrorKind = "disabled"     // the broker's queue, topic or event hub does not accept messages
	ErrorSession      ErrorKind = "session"      // the broker requires a session id, which the event lacks
)

var errorOutcomes = map[ErrorKind]Outcome{
	ErrorTimeout:      OutcomeTimedOut,
	ErrorCanceled:     OutcomeCanceled,
	ErrorSocket:       OutcomeSocketError,
	ErrorDNS:          OutcomeResolutionError,
	ErrorUnauthorized: OutcomeUnauthorized,
	ErrorArgument:     OutcomeGenericError,
	ErrorFull:         OutcomeFull,
	ErrorDisabled:     OutcomeDisabled,
	ErrorSession:      OutcomeSessionQueueNotSupported,
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
	Err    ErrorKind // why there is no response, or a broker's response
}

// Responded reports whether the endpoint responded: with a status, or as a broker that rejected the event. Otherwise
// Err, if set, is a transport error.
func (r Result) Responded() bool {
	switch r.Err {
	case ErrorNone:
		return r.Status != 0
	case ErrorFull, ErrorDisabled, ErrorSession:
		return true
	default:
		return false
	}
}

// String returns the condition of the cells for r: "503", "timeout". The zero Result is "other".
func (r Result) String() string {
	var buf [20]byte
	return string(r.appendTo(buf[:0]))
}

// appendTo writes the condition without allocating: Cell compares it with every cell for every attempt.
func (r Result) appendTo(buf []byte) []byte {
	if r.Err != ErrorNone {
		return append(buf, r.Err...)
	}
	if r.Status == 0 {
		return append(buf, conditionOther...)
	}
	return strconv.AppendInt(buf, int64(r.Status), 10)
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
		switch r.Status {
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
	if o, ok := errorOutcomes[r.Err]; ok {
		return o
	}
	return OutcomeGenericError
}

// Reason says why a delivery ended without success. It is Event Grid's deadLetterReason, for dead-lettered, dropped and
// canceled deliveries, spelled the same in JSON and SQL.
type Reason string

// The reasons. Event Grid documents MaxDeliveryAttemptsExceeded; the Undeliverable… words are those of real dead
// letters, and TimeToLiveExceeded is formed after them. The others are ours.
const (
	// The last allowed attempt failed, or the limit was lowered below the attempts made.
	ReasonMaxDeliveryAttemptsExceeded Reason = "MaxDeliveryAttemptsExceeded"
	// The time to live passed.
	ReasonTimeToLiveExceeded Reason = "TimeToLiveExceeded"
	// The response was 400, which is not retried.
	ReasonHTTPBadRequest Reason = "UndeliverableDueToHttpBadRequest"
	// Another response that the status table never retries.
	ReasonClientError Reason = "UndeliverableDueToClientError"
	// A consumer received the event and rejected it.
	ReasonRejectedByConsumer Reason = "RejectedByConsumer"
	// The delivery was due during a probation whose cause is not retried (documented behavior only).
	ReasonProbation Reason = "UndeliverableDueToProbationCausedByClientError"
	// An attempt was interrupted, or failed inside postrider, 20 times.
	ReasonTooManyReruns Reason = "TooManyReruns"
	// Canceled, because the event subscription was deleted.
	ReasonEventSubscriptionDeleted Reason = "EventSubscriptionDeleted"
	// Canceled, because the event subscription's expirationTimeUtc passed.
	ReasonEventSubscriptionExpired Reason = "EventSubscriptionExpired"
	// Dropped, because the event's row was deleted by hand.
	ReasonEventMissing Reason = "EventMissing"
	// Canceled by an operator.
	ReasonCanceledByOperator Reason = "CanceledByOperator"
	// Dead-lettered by an operator.
	ReasonDeadLetteredByOperator Reason = "DeadLetteredByOperator"
	// Canceled, because an operator erased the event.
	ReasonEventErased Reason = "EventErased"
)

var reasonSentences = map[Reason]string{
	ReasonMaxDeliveryAttemptsExceeded: "Maximum delivery attempts was exceeded.",
	ReasonTimeToLiveExceeded:          "Event time to live was exceeded.",
	ReasonHTTPBadRequest:              "Undeliverable due to HTTP bad request.",
	ReasonClientError:                 "Undeliverable due to client error.",
	ReasonRejectedByConsumer:          "Event was rejected by the consumer.",
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
