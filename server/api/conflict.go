package api

// ConflictCode is the code of a response 409. texts.yaml of package openapi documents each.
type ConflictCode string

// The codes.
const (
	ConflictCodeTopicExists                ConflictCode = "TopicExists"
	ConflictCodeTopicDeleted               ConflictCode = "TopicDeleted"
	ConflictCodeTopicHasSubscriptions      ConflictCode = "TopicHasSubscriptions"
	ConflictCodeSystemTopic                ConflictCode = "SystemTopic"
	ConflictCodeSubscriptionPaused         ConflictCode = "SubscriptionPaused"
	ConflictCodeSubscriptionResuming       ConflictCode = "SubscriptionResuming"
	ConflictCodeSubscriptionInProbation    ConflictCode = "SubscriptionInProbation"
	ConflictCodeSubscriptionNotInProbation ConflictCode = "SubscriptionNotInProbation"
	ConflictCodeSubscriptionNotSigned      ConflictCode = "SubscriptionNotSigned"
	ConflictCodeSubscriptionExpired        ConflictCode = "SubscriptionExpired"
	ConflictCodeSubscriptionDeleted        ConflictCode = "SubscriptionDeleted"
	ConflictCodeEndpointNotValidated       ConflictCode = "EndpointNotValidated"
	ConflictCodeEndpointChanged            ConflictCode = "EndpointChanged"
	ConflictCodeNoEndpoint                 ConflictCode = "NoEndpoint"
	ConflictCodePolicyBuiltIn              ConflictCode = "PolicyBuiltIn"
	ConflictCodePolicyInUse                ConflictCode = "PolicyInUse"
	ConflictCodeNameTaken                  ConflictCode = "NameTaken"
	ConflictCodeLastAdmin                  ConflictCode = "LastAdmin"
	ConflictCodeDeliveryEnded              ConflictCode = "DeliveryEnded"
	ConflictCodeAttemptInProgress          ConflictCode = "AttemptInProgress"
	ConflictCodeEventGone                  ConflictCode = "EventGone"
	ConflictCodeEventErased                ConflictCode = "EventErased"
	ConflictCodeSchemaMismatch             ConflictCode = "SchemaMismatch"
	ConflictCodeDeadLetterRedelivered      ConflictCode = "DeadLetterRedelivered"
	ConflictCodeDeadLetterExporting        ConflictCode = "DeadLetterExporting"
	ConflictCodeOperationRunning           ConflictCode = "OperationRunning"
	ConflictCodeQueriesNotSetUp            ConflictCode = "QueriesNotSetUp"
	ConflictCodeConcurrentChange           ConflictCode = "ConcurrentChange"
)
