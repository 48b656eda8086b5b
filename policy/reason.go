package policy

// Reason says why a delivery ended without success. It is Event Grid's deadLetterReason, written to dead-lettered and
// to dropped deliveries alike, spelled the same in JSON and SQL.
type Reason string

// The reasons. Event Grid documents MaxDeliveryAttemptsExceeded; the Undeliverable… words are those of real dead
// letters, and TimeToLiveExceeded is formed after them. The others are ours.
const (
	ReasonMaxDeliveryAttemptsExceeded Reason = "MaxDeliveryAttemptsExceeded"
	ReasonTimeToLiveExceeded          Reason = "TimeToLiveExceeded"
	ReasonHTTPBadRequest              Reason = "UndeliverableDueToHttpBadRequest"
	ReasonClientError                 Reason = "UndeliverableDueToClientError"
	ReasonProbation                   Reason = "UndeliverableDueToProbationCausedByClientError"
	// the attempt was interrupted, or failed on our side, 20 times
	ReasonTooManyReruns            Reason = "TooManyReruns"
	ReasonEventSubscriptionDeleted Reason = "EventSubscriptionDeleted" // of canceled deliveries
	ReasonEventSubscriptionExpired Reason = "EventSubscriptionExpired" // the same, where its expirationTimeUtc did it
	// of dropped deliveries: the event's row was removed by hand
	ReasonEventMissing           Reason = "EventMissing"
	ReasonCanceledByOperator     Reason = "CanceledByOperator"     // of canceled deliveries: somebody did it
	ReasonDeadLetteredByOperator Reason = "DeadLetteredByOperator" // somebody gave it up
	ReasonEventErased            Reason = "EventErased"            // of canceled deliveries: somebody erased the event
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
	ReasonDeadLetteredByOperator:      "The delivery was given up by an operator.",
	ReasonEventErased:                 "The event was erased.",
}

// Sentence returns the reason as dead letters of namespace topics carry it: a sentence, not a word. The first is
// Microsoft's own (Event Grid namespace push delivery and retry, 2023-11); the others are formed after it.
func (r Reason) Sentence() string {
	if s, ok := reasonSentences[r]; ok {
		return s
	}
	return string(r)
}
