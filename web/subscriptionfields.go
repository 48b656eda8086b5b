package web

import (
	"fmt"
	"strconv"

	"postrider/catalog"
	"postrider/event"
	"postrider/policy"
	"postrider/policy/filter"
	"postrider/web/display"
)

// subscriptionFields makes the sections of an event subscription's form, in the order in which one thinks of them.
type subscriptionFields struct {
	form     *form
	topic    *catalog.Topic
	policies []*policy.Policy
	existing *catalog.Subscription // nil for a new one
	action   string
	tester   filterTester
	focus    string // the list that was added to
}

func (s *subscriptionFields) sections() []formSection {
	return openWhere([]formSection{
		{ID: "endpoint", Title: "Endpoint", Fields: s.endpoint()},
		{
			ID: "filter", Title: "Filter", Lead: "Which events it wants; every event of the topic where nothing is said.",
			Fields: s.filter(), List: s.advancedFilters(), Tester: s.filterTester(),
		},
		{
			ID: "delivery", Title: "Delivery", Lead: "Batches, requests at once, headers, signatures", Folded: true,
			Fields: s.delivery(), List: s.headers(),
		},
		{ID: "retry", Title: "Retry", Fields: s.retry()},
		{
			ID: "dead-letters", Title: "Dead letters", Lead: "What becomes of an event that is given up", Folded: true,
			Fields: s.deadLetters(),
		},
		{
			ID: "connection", Title: "Connection", Lead: "TLS, certificates and tokens for the endpoint", Folded: true,
			Fields: s.connection(),
		},
		{ID: "advanced", Title: "Advanced", Lead: "Behaviour, labels, expiration", Folded: true, Fields: s.advanced()},
	})
}

func (s *subscriptionFields) endpoint() []formField {
	var list []formField
	url := formField{
		Name: "endpointUrl", Label: "URL", Kind: kindURL, Placeholder: "https://billing.example.com/events", Wide: true,
		Required: s.existing == nil,
		Hint:     "http or https. It is never shown again with its query, which often holds a secret.",
	}
	if s.existing == nil {
		list = append(list,
			formField{Name: "name", Label: "Name", Kind: kindText, Required: true, Hint: "3 to 64 letters, digits, dots, " +
				"underscores and hyphens."})
	} else {
		url.Label, url.Placeholder = "New URL", display.Visible(s.existing.EndpointBaseURL)
		url.Hint = "Leave it empty to keep the one that is stored, " + display.Visible(s.existing.EndpointBaseURL) +
			", with its query."
	}
	schemas := options("", "as published")
	for _, schema := range event.Deliveries(s.topic.InputSchema) {
		schemas = append(schemas, formOption{Value: string(schema), Text: string(schema)})
	}
	return s.form.fields(append(list, url,
		formField{
			Name: "eventDeliverySchema", Label: "Delivered as", Kind: kindSelect, Options: schemas,
			Hint: "The topic takes " + string(s.topic.InputSchema) + ".",
		},
		formField{
			Name: "endpointValidation", Label: "Validation", Kind: kindSelect, Options: options("", "the default", "required",
				"required: the endpoint answers a handshake", "skip", "skip: you vouch for it"),
			Hint: "Saving waits up to 15 seconds for the handshake of an endpoint that is new.",
		},
		formField{Name: "endpointKind", Label: "Kind", Kind: kindSelect, Options: options("webhook", "webhook",
			"azure-resource", "azure-resource"), Hint: "Which column of the retry policy’s status table applies."},
	)...)
}

func (s *subscriptionFields) filter() []formField {
	return s.form.fields(
		formField{
			Name: "filter.includedEventTypes", Label: "Event types", Kind: kindLines, Placeholder: "Shop.OrderPlaced",
			Wide: true, Hint: "One a line, compared exactly. Empty: every type.",
		},
		formField{Name: "filter.subjectBeginsWith", Label: "Subject begins with", Kind: kindText, Placeholder: "orders/"},
		formField{Name: "filter.subjectEndsWith", Label: "Subject ends with", Kind: kindText, Placeholder: ".jpg"},
		formField{Name: "filter.isSubjectCaseSensitive", Label: "The subject’s case matters", Kind: kindCheck},
		formField{Name: "filter.enableAdvancedFilteringOnArrays", Label: "Conditions look into arrays", Kind: kindCheck},
	)
}

func (s *subscriptionFields) advancedFilters() *formList {
	operators := make([]string, 0, 2*len(filter.Operators()))
	for _, name := range filter.Operators() {
		operators = append(operators, name, name)
	}
	rows := s.rows(filterList, "Condition", func(at string) []formField {
		return []formField{
			{Name: at + "key", Label: "Key", Kind: kindText, Placeholder: "data.total"},
			{Name: at + "operatorType", Label: "Operator", Kind: kindSelect, Options: options(operators...)},
			{Name: at + "value", Label: "Values", Kind: kindLines, Rows: 1, Placeholder: "one a line"},
		}
	})
	return s.list(&formList{
		Name: filterList, Title: "Conditions on the event’s content", Add: "Add a condition", Part: "filter", Rows: rows,
		Hint: "All of them must hold. One value a line, a range as “1, 10”; IsNullOrUndefined and IsNotNull take none. A " +
			"line in quotation marks is read as a JSON string.",
	})
}

func (s *subscriptionFields) headers() *formList {
	kinds := options(headerStatic, "static", headerSecret, "static, and a secret", headerDynamic, "from the event")
	rows := s.rows(headerList, "Header", func(at string) []formField {
		value := formField{
			Name: at + "properties", Label: "Value", Kind: kindText, Placeholder: "or the path of a field: data.system",
		}
		if s.form.get(at+"type") == headerSecret {
			value.Placeholder = "empty: what is stored stays"
		}
		return []formField{
			{Name: at + "name", Label: "Header", Kind: kindText, Placeholder: "X-Team"},
			{Name: at + "type", Label: "Its value is", Kind: kindSelect, Options: append([]formOption{}, kinds...)},
			value,
		}
	})
	return s.list(&formList{
		Name: headerList, Title: "Headers", Add: "Add a header", Part: "delivery", Rows: rows,
		Hint: "Every delivery carries them. A secret is not shown again: leave its value empty to keep it.",
	})
}

func (s *subscriptionFields) list(l *formList) *formList {
	l.Action, l.Mistakes = s.action, s.form.mistakes[l.Name]
	return l
}

// rows fills each row in; the first field of one that was just added is where the person goes on.
func (s *subscriptionFields) rows(list, title string, fields func(at string) []formField) []formRow {
	n := s.form.rows(list)
	rows := make([]formRow, n)
	for i := range rows {
		at := fmt.Sprintf("%s[%d]", list, i)
		rows[i] = formRow{Title: title + " " + strconv.Itoa(i+1), Fields: s.form.fields(fields(at + ".")...), Remove: at}
		rows[i].Fields[0].Focus = s.focus == list && i == n-1
	}
	return rows
}

func (s *subscriptionFields) filterTester() *filterTester {
	t := s.tester
	t.Action, t.Part = s.action, "filter"
	t.Event = s.form.fields(formField{
		Name: "event", Label: "One event", Kind: kindJSON, Rows: 4, Wide: true, Hint: "In the schema of the topic, " +
			string(s.topic.InputSchema) + ". Empty: the topic’s last 50 events. Nothing is stored or delivered.",
	})[0]
	t.Open = t.Asked || len(t.Event.Mistakes) > 0
	return &t
}

func (s *subscriptionFields) delivery() []formField {
	return s.form.fields(
		formField{
			Name: "maxEventsPerBatch", Label: "Events in a request, at most", Kind: kindNumber, Min: "1", Max: "5000",
			Placeholder: "1", Hint: "More than 1 makes batches: all or none. None waits for more to come.",
		},
		formField{
			Name: "preferredBatchSizeInKilobytes", Label: "Preferred size of a batch, KiB", Kind: kindNumber, Min: "1",
			Max: "1024", Placeholder: "64",
		},
		formField{
			Name: "maxConcurrentDeliveries", Label: "Requests at once, at most", Kind: kindNumber, Min: "1",
			Placeholder: "as many as it keeps up with", Hint: "Of all nodes together.",
		},
		formField{
			Name: "signing.enabled", Label: "Sign deliveries, as Standard Webhooks says", Kind: kindCheck,
			Hint: "Switching it off deletes the secrets.",
		},
	)
}

func (s *subscriptionFields) retry() []formField {
	var policies []formOption
	var here *policy.Policy
	for _, p := range s.policies {
		policies = append(policies, formOption{Value: p.Name, Text: fmt.Sprintf("%s: %s", p.Name, limitsText(p))})
		if p.Name == s.form.get("retryPolicy.policy") {
			here = p
		}
	}
	attempts, ttl, none, whole := "", "", "", ""
	if here != nil {
		attempts = fmt.Sprintf("%s takes %d to %d.", here.Name, here.MinMaxAttempts, here.MaxMaxAttempts)
		ttl = fmt.Sprintf("%s takes %s to %s, and %s where nothing is said.", here.Name, display.Span(here.MinTTL),
			display.Span(here.MaxTTL), display.Span(here.DefaultTTL))
		none = attemptsDefault(here)
	}
	if s.topic.Kind == catalog.TopicNamespace {
		attempts += " On a namespace topic also called maxDeliveryCount."
		ttl += fmt.Sprintf(" On a namespace topic also called eventTimeToLive; the topic keeps events for %s.",
			display.Plural(s.topic.EventRetentionInDays, "day"))
		whole = strconv.Itoa(s.topic.EventRetentionInDays)
	}
	const at = "retryPolicy.eventTimeToLiveInMinutes."
	return s.form.fields(
		formField{Name: "retryPolicy.policy", Label: "Retry policy", Kind: kindSelect, Options: policies, Wide: true},
		formField{
			Name: "retryPolicy.maxDeliveryAttempts", Label: "Attempts, at most", Kind: kindNumber, Min: "1", Placeholder: none,
			Hint: attempts,
		},
		formField{Name: at + "days", Label: "Time to live: days", Kind: kindNumber, Min: "0", Max: whole, Hint: ttl},
		formField{Name: at + "hours", Label: "and hours", Kind: kindNumber, Min: "0"},
		formField{Name: at + "minutes", Label: "and minutes", Kind: kindNumber, Min: "0"},
	)
}

// limitsText is what a policy asks of an event subscription that says nothing.
func limitsText(p *policy.Policy) string {
	return display.AttemptsAllowed(&p.DefaultMaxAttempts) + " within " + display.Span(p.DefaultTTL)
}

func attemptsDefault(p *policy.Policy) string {
	if p.DefaultMaxAttempts == 0 {
		return "no limit"
	}
	return strconv.Itoa(p.DefaultMaxAttempts)
}

func (s *subscriptionFields) deadLetters() []formField {
	const at = "deadLetterDestination."
	return s.form.fields(
		formField{
			Name: at + "endpointType", Label: "An event that is given up", Kind: kindSelect, Wide: true,
			Options: options("", "what the behaviour says", "Rows", "Rows: becomes a dead letter here", "None",
				"None: is dropped",
				"Blob", "Blob: becomes a dead letter, and is written outside", "StorageBlob",
				"StorageBlob: the same, by Event Grid’s name"),
		},
		formField{
			Name: at + "properties.url", Label: "Blob: location", Kind: kindText, Placeholder: "s3://bucket/dead-letters",
			Hint: "One that an operator has allowed (serve --dead-letter-location).",
		},
		formField{Name: at + "properties.prefix", Label: "Blob: prefix", Kind: kindText},
		formField{
			Name: at + "properties.resourceId", Label: "StorageBlob: resource id", Kind: kindText,
			Placeholder: "/subscriptions/…/storageAccounts/NAME",
		},
		formField{Name: at + "properties.blobContainerName", Label: "StorageBlob: container", Kind: kindText},
	)
}

// connection has neither of the two secrets: who types nothing keeps them.
func (s *subscriptionFields) connection() []formField {
	keep := "Empty: the one that is stored stays."
	key, client := "PEM.", ""
	if s.existing != nil && s.existing.Connection.ClientCertificate != nil {
		key += " " + keep
	}
	if s.existing != nil && s.existing.Connection.OAuth2 != nil {
		client = keep
	}
	return s.form.fields(
		formField{Name: "minimumTlsVersionAllowed", Label: "TLS, at least", Kind: kindSelect, Options: options("", "1.2",
			"1.3", "1.3")},
		formField{
			Name: "certificateAuthorities", Label: "Certificate authorities of the endpoint", Kind: kindLines, Wide: true,
			Placeholder: "-----BEGIN CERTIFICATE-----", Hint: "PEM. Empty: those that the system trusts.",
		},
		formField{
			Name: "clientCertificate.certificate", Label: "Certificate to show to the endpoint", Kind: kindLines, Wide: true,
			Placeholder: "-----BEGIN CERTIFICATE-----", Hint: "PEM, its chain below it. Empty: none.",
		},
		formField{
			Name: "clientCertificate.privateKey", Label: "Its private key", Kind: kindLines, Wide: true,
			Placeholder: "-----BEGIN PRIVATE KEY-----", Hint: key,
		},
		formField{
			Name: "oauth2.tokenUrl", Label: "OAuth 2 token URL", Kind: kindURL,
			Placeholder: "https://login.example.com/oauth2/token", Wide: true,
			Hint: "Client credentials: each request carries a token from there. Empty: none does.",
		},
		formField{Name: "oauth2.clientId", Label: "Client id", Kind: kindText},
		formField{Name: "oauth2.clientSecret", Label: "Client secret", Kind: kindSecret, Hint: client},
		formField{Name: "oauth2.scope", Label: "Scope", Kind: kindText},
	)
}

func (s *subscriptionFields) advanced() []formField {
	inherits := func(yes, no string) []formOption {
		return options("", "what the behaviour says", "true", yes, "false", no)
	}
	return s.form.fields(
		formField{
			Name: "behavior", Label: "Behaviour", Kind: kindSelect, Default: "safe", Wide: true, Options: options("safe",
				"safe: nothing is lost by a rule nobody chose", "documented", "documented: as the policy’s page says, literally"),
		},
		formField{Name: "honorRetryAfter", Label: "An endpoint’s Retry-After", Kind: kindSelect, Options: inherits(
			"puts the next attempt off", "is not looked at")},
		formField{Name: "probationAction", Label: "During a probation", Kind: kindSelect, Options: options("",
			"what the behaviour says", "hold", "hold: events wait", "documented", "documented: may be given up")},
		formField{
			Name: "retryTransportErrors", Label: "Where there was no answer", Kind: kindSelect,
			Options: inherits("another attempt is made", "what the status table says"),
		},
		formField{Name: "labels", Label: "Labels", Kind: kindLines, Hint: "One a line."},
		formField{Name: "expirationTimeUtc", Label: "Expires (UTC)", Kind: kindTime, Hint: "From then on it gets no more " +
			"events, and is deleted. Empty: never."},
	)
}
