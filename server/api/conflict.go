package api

// ConflictCode is the code of a response 409.
type ConflictCode string

// The codes.
const (
	// The topic exists with another kind, input schema or mapping.
	ConflictCodeTopicExists ConflictCode = "TopicExists"
	// The topic of an edited event was deleted.
	ConflictCodeTopicDeleted ConflictCode = "TopicDeleted"
	// The topic has event subscriptions. Delete them first.
	ConflictCodeTopicHasSubscriptions ConflictCode = "TopicHasSubscriptions"
	// The topic belongs to postrider. It cannot be deleted, and has no access keys.
	ConflictCodeSystemTopic ConflictCode = "SystemTopic"
	// The event subscription is paused. Resume it first.
	ConflictCodeSubscriptionPaused ConflictCode = "SubscriptionPaused"
	// The last pause of the event subscription is still ending. Retry in a moment.
	ConflictCodeSubscriptionResuming ConflictCode = "SubscriptionResuming"
	// The event subscription is in probation. Release or probe it first.
	ConflictCodeSubscriptionInProbation ConflictCode = "SubscriptionInProbation"
	// The event subscription is not in probation.
	ConflictCodeSubscriptionNotInProbation ConflictCode = "SubscriptionNotInProbation"
	// Deliveries of the event subscription are not signed.
	ConflictCodeSubscriptionNotSigned ConflictCode = "SubscriptionNotSigned"
	// The event subscription has expired.
	ConflictCodeSubscriptionExpired ConflictCode = "SubscriptionExpired"
	// The event subscription was deleted.
	ConflictCodeSubscriptionDeleted ConflictCode = "SubscriptionDeleted"
	// The endpoint has not completed the validation handshake.
	ConflictCodeEndpointNotValidated ConflictCode = "EndpointNotValidated"
	// The endpoint of the event subscription was changed during the handshake.
	ConflictCodeEndpointChanged ConflictCode = "EndpointChanged"
	// The event subscription has deliveryMode Queue. Consumers receive its events.
	ConflictCodeNoEndpoint ConflictCode = "NoEndpoint"
	// The retry policy is built in and cannot be changed.
	ConflictCodePolicyBuiltIn ConflictCode = "PolicyBuiltIn"
	// Event subscriptions use the retry policy.
	ConflictCodePolicyInUse ConflictCode = "PolicyInUse"
	// The name belongs to an API key, perhaps a revoked one. Or a topic or event subscription has it in another letter
	// case.
	ConflictCodeNameTaken ConflictCode = "NameTaken"
	// No administrator who can sign in would remain.
	ConflictCodeLastAdmin ConflictCode = "LastAdmin"
	// The delivery has ended.
	ConflictCodeDeliveryEnded ConflictCode = "DeliveryEnded"
	// An attempt of the delivery is in progress. Wait for its outcome.
	ConflictCodeAttemptInProgress ConflictCode = "AttemptInProgress"
	// The relay feed has no callback that can be opened.
	ConflictCodeNoCallback ConflictCode = "NoCallback"
	// The event of the delivery is no longer stored.
	ConflictCodeEventGone ConflictCode = "EventGone"
	// The event was erased.
	ConflictCodeEventErased ConflictCode = "EventErased"
	// The event subscription's delivery schema cannot represent the event, or the topic of an edited event has another
	// schema.
	ConflictCodeSchemaMismatch ConflictCode = "SchemaMismatch"
	// The event was just published and is not routed yet. Retry in some seconds.
	ConflictCodeEventNotRouted ConflictCode = "EventNotRouted"
	// A delivery of the event to the event subscription is pending.
	ConflictCodeDeliveryPending ConflictCode = "DeliveryPending"
	// The event did not match the event subscription. Set unmatched to deliver it all the same.
	ConflictCodeEventNotMatched ConflictCode = "EventNotMatched"
	// The dead letter was redelivered before. Set again to redeliver it once more.
	ConflictCodeDeadLetterRedelivered ConflictCode = "DeadLetterRedelivered"
	// The dead letter is being exported. Retry in a minute.
	ConflictCodeDeadLetterExporting ConflictCode = "DeadLetterExporting"
	// A running operation uses this subject. Wait until it ends, or cancel it.
	ConflictCodeOperationRunning ConflictCode = "OperationRunning"
	// The server has no login roles for queries. Run `postrider migrate up`.
	ConflictCodeQueriesNotSetUp ConflictCode = "QueriesNotSetUp"
	// Another request changed the same object. Read it again and retry.
	ConflictCodeConcurrentChange ConflictCode = "ConcurrentChange"
)
