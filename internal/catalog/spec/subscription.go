package spec

import (
	"math"
	"slices"

	"postrider/internal/destination"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/message"
	"postrider/policy"
)

// Sections of an event subscription's settings.
const (
	Mode        = "Delivery mode"
	Endpoint    = "Endpoint"
	Destination = "Destination"
	Filter      = "Filter"
	Delivery    = "Delivery"
	Messages    = "Messages"
	Retry       = "Retry"
	DeadLetters = "Dead letters"
	Connection  = "Connection"
	Advanced    = "Advanced"
)

// maxCertificateBytes and maxOAuthBytes bound what real certificates and credentials need several times over.
const (
	maxCertificateBytes = 64 << 10
	maxOAuthBytes       = 4096
)

// Groups of destination types that have a setting.
var (
	webhooks   = []destination.Type{destination.WebHook}
	requests   = []destination.Type{destination.WebHook, destination.HybridConnection}
	namespaces = []destination.Type{
		destination.ServiceBusQueue, destination.ServiceBusTopic, destination.EventHub, destination.HybridConnection,
	}
	azure   = append([]destination.Type{destination.StorageQueue}, namespaces...)
	queues  = []destination.Type{destination.StorageQueue}
	kafka   = []destination.Type{destination.Kafka}
	nats    = []destination.Type{destination.NatsJetStream}
	brokers = slices.Concat(kafka, nats)

	attributed = slices.Concat(webhooks, namespaces, brokers)
	authorized = slices.Concat(webhooks, azure, kafka)
	batched    = slices.Concat(webhooks, namespaces)
	sized      = slices.Concat(namespaces[:3], brokers)
	validated  = slices.Concat(webhooks, queues, brokers)
)

var deliverySchemas = []string{string(event.EventGrid), string(event.CloudEvents), string(event.CustomInput)}

// OfRequests reports whether a setting of an event subscription concerns requests to an endpoint. With deliveryMode
// Queue there are none.
func OfRequests(s *Setting) bool {
	switch s.Name {
	case "eventDeliverySchema":
		return false
	case "honorRetryAfter", "probationAction", "retryTransportErrors":
		return true
	}
	return slices.Contains([]string{Destination, Endpoint, Delivery, Messages, Connection}, s.Section)
}

// Subscription are the settings of an event subscription. Names are Event Grid's if it has the setting.
var Subscription = []Setting{
	{
		Name: "deliveryConfiguration.deliveryMode", Section: Mode, Label: "Mode", Kind: Choice, Default: "Push",
		Choices: []string{"Push", "Queue"},
		Help: "Push: postrider sends events to the endpoint. Queue: consumers receive events and acknowledge them (pull " +
			"delivery). Settings of requests must then be absent.",
	},
	{
		Name: "deliveryConfiguration.queue.receiveLockDurationInSeconds", Section: Mode, Label: "Lock duration (s)",
		Kind: Whole, Min: 60, Max: 300, Flag: "lock-duration", Default: "60",
		Help: "Of Queue: seconds that a consumer has for an event that it received.",
	},
	{
		Name: "deliveryConfiguration.queue.maxDeliveryCount", Section: "", Kind: Whole, Min: 1, Max: 10,
		Flag: "max-delivery-count", Label: "Delivery count",
		Help: "Of Queue: name of retryPolicy.maxDeliveryAttempts.", Default: "10",
	},
	{
		Name: "deliveryConfiguration.queue.eventTimeToLive", Section: "", Kind: Text, Flag: "event-time-to-live",
		Label: "Time to live", Default: "P7D, or the topic's retention if it is shorter", Example: "P1D",
		Help: "Of Queue: name of retryPolicy.eventTimeToLiveInMinutes: an ISO 8601 duration of whole minutes.",
	},
	{
		Name: "deliveryConfiguration.queue.deadLetterDestination", Section: "", Kind: JSON, Flag: "-",
		Label: "Destination", Help: "Of Queue: name of deadLetterDestination.", Default: "deadLetterDestination",
	},
	{
		Name: "deliveryConfiguration.queue.deadLetterDestinationWithResourceIdentity", Section: "", Kind: JSON, Flag: "-",
		Label: "Destination, identity", Default: "deadLetterDestination",
		Help: "Of Queue: deadLetterDestination beside an identity, which is not used: an operator configures access.",
	},
	{
		Name: "destination.endpointType", Section: Destination, Label: "Type", Kind: Choice, Choices: destination.Types(),
		Flag: "endpoint-type", Azure: true, Default: string(destination.WebHook),
		Help: "Type of the destination. WebHook: the URL of endpointUrl. The others are a service or a broker that its " +
			"properties name.",
	},
	{
		Name: "destination.properties.resourceId", Section: Destination, Label: "Resource id", Kind: Text, Max: 1024,
		Of: azure, Flag: "destination-resource-id", Default: "none; this or endpoint is required",
		Help: "Azure resource id of the queue, topic, hub or hybrid connection, or of the storage account. It stands for " +
			"the host in the public cloud.",
		Example: "/subscriptions/…/providers/Microsoft.ServiceBus/namespaces/shop/queues/orders",
	},
	{
		Name: "destination.properties.endpoint", Section: Destination, Label: "Service URL", Kind: Text, Max: 2048,
		Of:   azure,
		Flag: "service-url", Default: "that of resourceId",
		Help:    "URL of the namespace or of the storage account's queues, such as in another cloud or of an emulator.",
		Example: "https://shop.servicebus.windows.net",
	},
	{
		Name: "destination.properties.entityName", Section: Destination, Label: "Entity", Kind: Text, Max: 260,
		Of: namespaces, Default: "that of resourceId", Help: "Name of the queue, topic, hub or hybrid connection.",
		Example: "orders",
	},
	{
		Name: "destination.properties.queueName", Section: Destination, Label: "Queue", Kind: Text, Max: 63, Of: queues,
		Azure: false, Default: "that of resourceId", Help: "Name of the storage queue.", Example: "orders",
	},
	{
		Name: "destination.properties.queueMessageTimeToLiveInSeconds", Section: Destination,
		Label: "Message lifetime (s)",
		Kind:  Whole, Min: -1, Max: math.MaxInt32, Of: queues, Flag: "storage-queue-msg-ttl", Azure: true,
		Aliases: []string{"qttl"}, Default: "604800, which is 7 days",
		Help: "Seconds that a message stays in the storage queue; -1 = it never expires.",
	},
	{
		Name: "destination.properties.sharedAccessKeyName", Section: Destination, Label: "Key name", Kind: Text, Max: 256,
		Of: namespaces, Default: "none; required with primaryKey",
		Help: "Name of the shared access policy whose keys sign requests. It needs the right Send.", Example: "send",
	},
	{
		Name: "destination.properties.primaryKey", Section: Destination, Label: "Primary key", Kind: Text, Max: 1024,
		Secret: true, Of: azure, Flag: "primary-key-file", Default: "the stored one",
		Help: "Key that signs requests. It is not shown again.",
	},
	{
		Name: "destination.properties.secondaryKey", Section: Destination, Label: "Secondary key", Kind: Text, Max: 1024,
		Secret: true, Of: azure, Flag: "secondary-key-file", Default: "the stored one; none if primaryKey is sent",
		Help: "Key that is tried once if the service rejects the primary one. It is not shown again.",
	},
	{
		Name: "destination.properties.sharedAccessSignature", Section: Destination, Label: "SAS token", Kind: Text,
		Max: 2048, Secret: true, Of: azure, Flag: "shared-access-signature-file", Default: "the stored one",
		Help: "Token instead of a key, with the permission to add messages. It is not shown again.",
	},
	{
		Name: "destination.properties.connectionString", Section: Destination, Label: "Connection string", Kind: Text,
		Max: 4096, Secret: true, Of: azure, Flag: "connection-string-file", Default: "none",
		Help: "Connection string of the namespace, entity or storage account, instead of the settings that it has. It is " +
			"stored as those.",
		Example: "Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…;EntityPath=…",
	},
	{
		Name: "destination.properties.servers", Section: Destination, Label: "Servers", Kind: Lines, Max: 16, Of: brokers,
		Default: "none; required", Help: "Servers of the broker, each as HOST:PORT. One that responds is enough.",
		Example: "kafka-1.example.com:9093",
	},
	{
		Name: "destination.properties.tls", Section: Destination, Label: "TLS", Kind: Switch, Of: brokers, Default: "true",
		Help: "Use TLS for connections to the servers. Without it, they must be in networks that --allow-cidr opens.",
	},
	{
		Name: "destination.properties.topic", Section: Destination, Label: "Kafka topic", Kind: Text, Max: 249, Of: kafka,
		Flag: "kafka-topic", Default: "none; required", Help: "Topic that records are written to. It must exist.",
		Example: "orders",
	},
	{
		Name: "destination.properties.contentMode", Section: Destination, Label: "Content mode", Kind: Choice, Of: kafka,
		Choices: []string{string(destination.Structured), string(destination.Binary)},
		Default: string(destination.Structured),
		Help: "structured: the record's value is the whole event. binary: the attributes of a CloudEvent are headers, its " +
			"data is the value.",
	},
	{
		Name: "destination.properties.messageKey", Section: Destination, Label: "Record key", Kind: Text, Max: 256,
		Of:      kafka,
		Default: destination.KeyNone, Example: "data.customer",
		Help: "Key of records, which selects the partition: none, id, subject, partitionkey, or the path of a value in the " +
			"event.",
	},
	{
		Name: "destination.properties.saslMechanism", Section: Destination, Label: "SASL mechanism", Kind: Choice,
		Of: kafka,
		Choices: []string{
			string(destination.SASLNone), string(destination.SASLPlain), string(destination.SASLScram256),
			string(destination.SASLScram512), string(destination.SASLOAuthBearer),
		}, Default: string(destination.SASLNone),
		Help: "How the client authenticates. OAUTHBEARER uses the settings of oauth2, the others username and password.",
	},
	{
		Name: "destination.properties.subject", Section: Destination, Label: "NATS subject", Kind: Text, Max: 256,
		Of:   nats,
		Flag: "nats-subject", Default: "none; required",
		Help:    "Subject that messages are published to. A stream must have it.",
		Example: "shop.orders",
	},
	{
		Name: "destination.properties.stream", Section: Destination, Label: "NATS stream", Kind: Text, Max: 256, Of: nats,
		Flag: "nats-stream", Default: "any", Help: "Stream that must store the messages.", Example: "SHOP",
	},
	{
		Name: "destination.properties.username", Section: Destination, Label: "User name", Kind: Text, Max: 1024,
		Of:      brokers,
		Default: "none", Help: "User name at the broker.",
	},
	{
		Name: "destination.properties.password", Section: Destination, Label: "Password", Kind: Text, Max: 4096,
		Secret: true,
		Of:     brokers, Flag: "password-file", Default: "the stored one",
		Help: "Password at the broker; without username, a NATS token. It is not shown again.",
	},
	{
		Name: "destination.properties.credentials", Section: Destination, Label: "Credentials", Kind: PEM,
		Max: maxCertificateBytes, Secret: true, Of: nats, Flag: "nats-credentials", Default: "the stored one",
		Help:    "Text of a NATS credentials file (.creds). It is not shown again.",
		Example: "-----BEGIN NATS USER JWT-----",
	},
	{
		Name: "destination.properties.maxMessageSizeInKilobytes", Section: Destination, Label: "Message size (KiB)",
		Kind: Whole, Min: 1, Max: 102_400, Of: sized,
		Default: "256 for Service Bus, 1024 for EventHub, the broker's for the others",
		Help:    "Largest message in KiB. A larger one is not sent: its outcome is PayloadTooLarge.",
	},
	{
		Name: "endpointUrl", Section: Endpoint, Of: webhooks, Label: "URL", Kind: URL, Max: 2048, Secret: true,
		Flag:  "endpoint",
		Azure: true, Default: "none; required with Push",
		Help:    "URL that events are delivered to. It is not shown again with its query, which often holds a secret.",
		Example: "https://billing.example.com/events",
	},
	{
		Name: "eventDeliverySchema", Section: Endpoint, Label: "Schema", Kind: Choice, Choices: deliverySchemas,
		Azure: true,
		Help:  "Schema of the delivered events.", Default: "the topic's input schema",
	},
	{
		Name: "endpointValidation", Section: Endpoint, Of: validated, Label: "Validation", Kind: Choice,
		Choices: []string{"required", "skip"}, Default: "required",
		Help: "required: a new endpoint must pass the validation handshake before the first delivery; saving waits up to " +
			"15 s for it. Of a queue, Kafka or NATS, the target must exist and accept the credentials. skip: an operator is " +
			"responsible for the endpoint.",
	},
	{
		Name: "endpointKind", Section: Endpoint, Label: "Kind", Kind: Choice,
		Default: "webhook; azure-resource for another destination than WebHook",
		Choices: []string{string(policy.KindWebhook), string(policy.KindAzureResource)},
		Help:    "Column of the retry policy's status table.",
	},
	{
		Name: "filter.includedEventTypes", Section: Filter, Label: "Event types", Kind: Lines, Azure: true,
		Help: "Match only events of these types, compared exactly.", Default: "every type", Example: "Shop.OrderPlaced",
	},
	{
		Name: "filter.subjectBeginsWith", Section: Filter, Label: "Subject prefix", Kind: Text, Azure: true,
		Help: "Match only events whose subject begins with this text.", Default: "any subject", Example: "orders/",
	},
	{
		Name: "filter.subjectEndsWith", Section: Filter, Label: "Subject suffix", Kind: Text, Azure: true,
		Help: "Match only events whose subject ends with this text.", Default: "any subject", Example: ".jpg",
	},
	{
		Name: "filter.isSubjectCaseSensitive", Section: Filter, Label: "Case-sensitive subject", Kind: Switch, Azure: true,
		Flag: "subject-case-sensitive", Help: "Compare the subject's prefix and suffix with regard to case.",
		Default: "false",
	},
	{
		Name: "filter.enableAdvancedFilteringOnArrays", Section: Filter, Label: "Match array elements", Kind: Switch,
		Azure: true, Flag: "enable-advanced-filtering-on-arrays", Aliases: []string{"enable-af-arr"},
		Help:    "Advanced filters match an array if one of its elements matches.",
		Default: "false",
	},
	{
		Name: "filter.advancedFilters", Section: Filter, Label: "Advanced filters", Kind: JSON, Azure: true,
		Flag: "advanced-filter", Default: "none", Example: "data.total NumberGreaterThan 100",
		Help: "Conditions on the event's content; all of them must hold.",
	},
	{
		Name: "maxEventsPerBatch", Section: Delivery, Of: batched, Label: "Events per batch", Kind: Whole, Min: 1,
		Max: 5000, Azure: true,
		Help:    "Most events in one request. More than 1 delivers batches. postrider does not wait for a batch to fill.",
		Default: "1; 10 if only preferredBatchSizeInKilobytes is set; 100 for EventHub",
	},
	{
		Name: "preferredBatchSizeInKilobytes", Section: Delivery, Of: batched, Label: "Batch size (KiB)", Kind: Whole,
		Min: 1, Max: 1024,
		Azure: true, Aliases: []string{"pref-batch-size-kb"}, Default: "64 if batches are on; 192 for EventHub",
		Help: "Target size of a batch's body in KiB. A larger single event is sent alone.",
	},
	{
		Name: "maxConcurrentDeliveries", Section: Delivery, Label: "Concurrent requests", Kind: Whole, Min: 1,
		Max: math.MaxInt32, Help: "Most requests in flight, counted over all nodes.",
		Default: "adapts to the endpoint",
	},
	{
		Name: "deliveryRate.limit", Section: Delivery, Label: "Rate limit", Kind: Whole, Min: 1, Max: 100_000,
		Flag: "rate-limit", Help: "Most requests or events in each period, over all nodes. Further deliveries wait, the " +
			"oldest first.", Default: "no limit",
	},
	{
		Name: "deliveryRate.periodInSeconds", Section: Delivery, Label: "Rate period (s)", Kind: Whole, Min: 1,
		Max:  86_400,
		Flag: "rate-period", Help: "Length of the rate limit's period in seconds.", Default: "1",
	},
	{
		Name: "deliveryRate.burst", Section: Delivery, Label: "Rate burst", Kind: Whole, Min: 1, Max: 100_000,
		Flag: "rate-burst", Help: "Most requests or events at once after a pause.",
		Default: "those of 250 ms, at least 1",
	},
	{
		Name: "deliveryRate.scope", Section: Delivery, Label: "Rate scope", Kind: Choice, Flag: "rate-scope",
		Choices: []string{string(endpointconf.RatePerSubscription), string(endpointconf.RatePerEndpoint)},
		Default: "subscription",
		Help: "subscription: a separate limit. endpoint: one limit for all event subscriptions with this scope whose " +
			"endpoints have the same host; the lowest holds.",
	},
	{
		Name: "deliveryRate.count", Section: Delivery, Label: "Rate counts", Kind: Choice, Flag: "rate-count",
		Choices: []string{string(endpointconf.RateOfRequests), string(endpointconf.RateOfEvents)}, Default: "requests",
		Help: "What the rate limit counts: requests, or the events in them.",
	},
	{
		Name: "responseTimeoutInSeconds", Section: Delivery, Label: "Response timeout (s)", Kind: Whole, Min: 1, Max: 230,
		Help: "Seconds that the endpoint has for its response.", Default: "the retry policy's",
	},
	{
		Name: "signing.enabled", Section: Delivery, Of: requests, Label: "Sign deliveries", Kind: Switch,
		Flag: "signing", Default: "false",
		Help: "Sign deliveries as Standard Webhooks describes. Setting it to false deletes the secrets.",
	},
	{
		Name: "signing.secret", Section: Delivery, Of: requests, Label: "Signing secret", Kind: Text, Max: 128,
		Secret: true,
		Flag:   "signing-secret-file", Default: "the stored one, or a generated one",
		Help: "First secret: whsec_ and the base64 of 24 to 64 random bytes. rotateSigningSecret replaces it.",
	},
	{
		Name: "deliveryAttributeMappings", Section: Delivery, Of: attributed, Label: "Headers", Kind: JSON,
		Azure: true, Default: "none",
		Flag: "delivery-attribute-mapping", Example: "X-Team static billing", Secret: true,
		Help: "Headers of every delivery: a fixed value, a secret, or a field of the event.",
	},
	{
		Name: "messageFormat", Section: Messages, Of: webhooks, Label: "Message format", Kind: Choice,
		Choices: message.Formats,
		Default: string(message.None), Help: "Of topic postrider.system: send each notice as a message to this service. " +
			"Reads then show only scheme and host of endpointUrl, and the default of endpointValidation is skip.",
	},
	{
		Name: "pagerDutyRoutingKey", Section: Messages, Of: webhooks, Label: "PagerDuty routing key", Kind: Text,
		Max: 128, Secret: true,
		Flag: "pagerduty-routing-key-file", Default: "the stored one; required with PagerDuty",
		Help: "Integration key of PagerDuty's Events API v2. It is not shown again.",
	},
	{
		Name: "retryPolicy.policy", Section: Retry, Label: "Retry policy", Kind: Text, Example: "ga-2021",
		Help: "Name of the retry policy.", Default: "ga-2021; namespace-2023 on a namespace topic and with Queue",
	},
	{
		Name: "retryPolicy.maxDeliveryAttempts", Section: Retry, Label: "Delivery attempts", Kind: Whole, Azure: true,
		Help: "Most delivery attempts, within the range of the retry policy.", Default: "the retry policy's",
		Example: "10",
	},
	{
		Name: "retryPolicy.eventTimeToLiveInMinutes", Section: Retry, Label: "Time to live (min)", Kind: Whole,
		Azure: true,
		Flag:  "event-ttl",
		Help: "Minutes after publishing until an event is no longer attempted, within the range of the " +
			"retry policy.", Default: "the retry policy's", Example: "1440",
	},
	{
		Name: "retryPolicy.maxDeliveryCount", Section: "", Kind: Whole, Flag: "-", Label: "Delivery count",
		Help: "Name of maxDeliveryAttempts on a namespace topic.", Default: "maxDeliveryAttempts",
	},
	{
		Name: "retryPolicy.eventTimeToLive", Section: "", Kind: Text, Flag: "-", Label: "Time to live",
		Help:    "Name of eventTimeToLiveInMinutes on a namespace topic: an ISO 8601 duration of whole minutes.",
		Default: "eventTimeToLiveInMinutes", Example: "P1DT2H",
	},
	{
		Name: "deadLetterDestination.endpointType", Section: DeadLetters, Label: "Dead-letter destination",
		Kind: Choice, Flag: "-",
		Choices: []string{"Rows", "None", "Blob", "StorageBlob"}, Default: "Rows under behavior safe",
		Help: "Where events go that cannot be delivered. Rows: a dead letter in this database. None: the event is dropped. " +
			"Blob and StorageBlob: a dead letter, also written to a storage location.",
	},
	{
		Name: "deadLetterDestination.properties.url", Section: DeadLetters, Label: "Blob location", Kind: Text, Flag: "-",
		Help:    "Of Blob: a location that an operator has allowed with serve --dead-letter-location, or a path within it.",
		Default: "none", Example: "s3://bucket/dead-letters",
	},
	{
		Name: "deadLetterDestination.properties.prefix", Section: DeadLetters, Label: "Blob prefix", Kind: Text, Flag: "-",
		Help: "Of Blob: path within the location.", Default: "none",
	},
	{
		Name: "deadLetterDestination.properties.resourceId", Section: DeadLetters, Label: "Storage resource", Kind: Text,
		Flag: "-", Help: "Of StorageBlob: resource id of a storage account or of a container in it.", Default: "none",
		Example: "/subscriptions/…/storageAccounts/NAME",
	},
	{
		Name: "deadLetterDestination.properties.blobContainerName", Section: DeadLetters, Label: "Storage container",
		Kind: Text, Flag: "-", Help: "Of StorageBlob: name of the container.", Default: "none",
	},
	{
		Name: "minimumTlsVersionAllowed", Section: Connection, Label: "Minimum TLS", Kind: Choice, Default: "1.2",
		Choices: []string{string(endpointconf.TLS12), string(endpointconf.TLS13)},
		Help:    "Lowest TLS version that the endpoint may use.",
	},
	{
		Name: "certificateAuthorities", Section: Connection, Label: "Certificate authorities", Kind: PEM,
		Max: maxCertificateBytes, Default: "those that the system trusts", Example: "-----BEGIN CERTIFICATE-----",
		Help: "PEM. One of these authorities must have issued the endpoint's certificate.",
	},
	{
		Name: "clientCertificate.certificate", Section: Connection, Label: "Client certificate", Kind: PEM,
		Max: maxCertificateBytes, Flag: "client-certificate", Default: "none", Example: "-----BEGIN CERTIFICATE-----",
		Help: "PEM. Certificate that postrider presents to the endpoint, followed by its chain.",
	},
	{
		Name: "clientCertificate.privateKey", Section: Connection, Label: "Private key", Kind: PEM, Secret: true,
		Max: maxCertificateBytes, Flag: "client-key", Default: "the stored one", Example: "-----BEGIN PRIVATE KEY-----",
		Help: "PEM, not encrypted. Key of the client certificate. It is not shown again.",
	},
	{
		Name: "oauth2.tokenUrl", Section: Connection, Of: authorized, Label: "OAuth token URL", Kind: URL,
		Flag: "oauth2-token-url",
		Help: "Source of the access token that each request carries (OAuth 2.0 client credentials).", Default: "no token",
		Example: "https://login.example.com/oauth2/token",
	},
	{
		Name: "oauth2.clientId", Section: Connection, Of: authorized, Label: "OAuth client id", Kind: Text,
		Max:  maxOAuthBytes,
		Flag: "oauth2-client-id", Help: "Client id at the token URL.", Default: "none",
	},
	{
		Name: "oauth2.clientSecret", Section: Connection, Of: authorized, Label: "OAuth client secret", Kind: Text,
		Max:    maxOAuthBytes,
		Secret: true, Flag: "oauth2-client-secret-file", Default: "the stored one",
		Help: "Client secret at the token URL. It is not shown again.",
	},
	{
		Name: "oauth2.scope", Section: Connection, Of: authorized, Label: "OAuth scope", Kind: Text, Max: maxOAuthBytes,
		Flag: "oauth2-scope", Help: "Scope of the access token.", Default: "none", Example: "api://orders/.default",
	},
	{
		Name: "behavior", Section: Advanced, Label: "Behavior", Kind: Choice, Default: "safe",
		Choices: []string{string(policy.BehaviorSafe), string(policy.BehaviorDocumented)},
		Help: "safe: no event is lost by a rule that you did not choose. documented: the retry policy's page, taken " +
			"literally.",
	},
	{
		Name: "honorRetryAfter", Section: Advanced, Label: "Honor Retry-After", Kind: Switch, Default: "set by behavior",
		Help: "An endpoint's Retry-After headers defer attempts.",
	},
	{
		Name: "probationAction", Section: Advanced, Label: "During probation", Kind: Choice, Default: "set by behavior",
		Choices: []string{string(policy.ProbationHold), string(policy.ProbationDocumented)},
		Help:    "hold: events wait until the endpoint recovers. documented: they may be dead-lettered without an attempt.",
	},
	{
		Name: "retryTransportErrors", Section: Advanced, Label: "Retry transport errors", Kind: Switch,
		Default: "set by behavior",
		Help:    "Retry if there was no response, even if the status table forbids it.",
	},
	{
		Name: "description", Section: Advanced, Label: "Description", Kind: Text, Max: 256, Default: "none", Listed: true,
		Help:    "What the event subscription is for, and who to ask. Lists and notices show it.",
		Example: "Invoices; #team-billing",
	},
	{
		Name: "labels", Section: Advanced, Label: "Labels", Kind: Lines, Azure: true, Max: 100, Default: "none",
		Help: "Free texts of 1 to 256 characters each.", Example: "team-billing",
	},
	{
		Name: "expirationTimeUtc", Section: Advanced, Label: "Expires (UTC)", Kind: Time, Azure: true,
		Flag: "expiration-date", Help: "Time at which the event subscription is deleted and its pending deliveries are " +
			"canceled.", Default: "never", Example: "2030-01-31T12:00:00Z",
	},
}
