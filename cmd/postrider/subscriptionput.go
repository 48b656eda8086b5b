package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// oneSubscription is a verb about one event subscription.
type oneSubscription struct {
	restFlags
	Topic        string `arg:"" help:"Name of the topic."`
	Subscription string `arg:"" help:"Name of the event subscription."`
}

type subscriptionCreateCmd struct {
	oneSubscription
	settingFlags
	azureFlags
	ifMatchFlag
	Replace bool `help:"Where it exists already, replace it; what is left out takes its default. So does --if-match."`
}

// Help is shown by subscription create --help.
func (subscriptionCreateCmd) Help() string {
	return `The endpoint has to answer the validation handshake first, see docs/endpoints.md; --endpoint-validation skip does without. Flags that the Azure
CLI has are called as there.

Examples:
  postrider subscription create orders billing --endpoint https://billing.example.com/events --max-delivery-attempts 10 --event-ttl 60
  postrider subscription create orders large --endpoint https://audit.example.com/in --included-event-types Shop.OrderPlaced,Shop.OrderPaid \
    --advanced-filter 'data.total NumberGreaterThan 100' --advanced-filter 'data.city StringIn "New York" Paris' --policy ga-2019`
}

// Run executes subscription create.
func (c *subscriptionCreateCmd) Run(ctx context.Context) error {
	settings, err := c.settings()
	if err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	headers := []string{"If-None-Match", "*"}
	if c.Replace || c.IfMatch != "" {
		headers = c.headers()
	}
	var made object
	err = waiting("the endpoint answers its validation handshake", func() error {
		return client.call(ctx, http.MethodPut, subscriptionURL(c.Topic, c.Subscription), settings, &made, headers...)
	})
	if isStatus(err, http.StatusPreconditionFailed) && c.IfMatch == "" {
		return fmt.Errorf("topic %s has an event subscription %s already: change it with subscription update, or say --replace", c.Topic, c.Subscription)
	}
	if err != nil {
		return err
	}
	return c.print(made, func(w io.Writer) { printSubscription(w, made) })
}

type subscriptionUpdateCmd struct {
	oneSubscription
	settingFlags
	azureFlags
	ifMatchFlag
	Unset []string `help:"Take a setting's default back; its name is the API's, such as maxEventsPerBatch or retryPolicy.maxDeliveryAttempts." placeholder:"PROPERTY"`
}

// Help is shown by subscription update --help.
func (subscriptionUpdateCmd) Help() string {
	return `What is not named stays as it is. Lists are replaced as a whole.

Examples:
  postrider subscription update orders billing --max-delivery-attempts 5 --labels billing,team-a
  postrider subscription update orders billing --unset retryPolicy.maxDeliveryAttempts --unset labels`
}

// Run executes subscription update.
func (c *subscriptionUpdateCmd) Run(ctx context.Context) error {
	settings, err := c.settings()
	if err != nil {
		return err
	}
	for _, path := range c.Unset {
		if err := setNull(settings, path); err != nil {
			return err
		}
	}
	if len(settings) == 0 {
		return usagef("nothing to change: name a setting, see postrider subscription update --help")
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	var changed object
	err = waiting("the endpoint answers its validation handshake", func() error {
		return client.call(ctx, http.MethodPatch, subscriptionURL(c.Topic, c.Subscription), settings, &changed, c.headers()...)
	})
	if err != nil {
		return err
	}
	return c.print(changed, func(w io.Writer) { printSubscription(w, changed) })
}

// setNull sets what the path leads to, making the objects on the way.
func setNull(o object, path string) error {
	for name := range strings.SplitSeq(path, ".") {
		if name == "" {
			return usagef("--unset %q: not a property such as retryPolicy.maxDeliveryAttempts", path)
		}
	}
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		inner, ok := o[name].(object)
		if !ok {
			inner = object{}
			o[name] = inner
		}
		o = inner
	}
	last := names[len(names)-1]
	if o[last] != nil {
		return usagef("--unset %s: another flag sets it", path)
	}
	o[last] = nil
	return nil
}

type subscriptionListCmd struct {
	restFlags
	Topic string `arg:"" optional:"" help:"Name of the topic; all topics where it is left out."`
}

// Help is shown by subscription list --help.
func (subscriptionListCmd) Help() string {
	return "Examples:\n  postrider subscription list orders\n  postrider subscription list -o json"
}

// Run executes subscription list.
func (c *subscriptionListCmd) Run(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	list, err := client.subscriptionsOf(ctx, c.Topic)
	if err != nil {
		return err
	}
	return c.print(list, func(w io.Writer) { printColumns(w, subscriptionColumns, list) })
}

var subscriptionColumns = []column{
	{title: "TOPIC", path: "topic"},
	{title: "SUBSCRIPTION", path: "name"},
	{title: "ENDPOINT", path: "endpointBaseUrl"},
	{title: "POLICY", path: "retryPolicy.policy"},
	{title: "ATTEMPTS", path: "retryPolicy.maxDeliveryAttempts"},
	{title: "TTL, MINUTES", path: "retryPolicy.eventTimeToLiveInMinutes"},
	{title: "STATE", path: "provisioningState"},
	{title: "HOLD", path: "hold.reason"},
}

// subscriptionsOf lists the event subscriptions of a topic, or of all topics: "".
func (c *apiClient) subscriptionsOf(ctx context.Context, topic string) (list []object, err error) {
	topics := []string{topic}
	if topic == "" {
		if topics, err = c.topicNames(ctx); err != nil {
			return nil, err
		}
	}
	list = []object{}
	for _, name := range topics {
		part, err := c.all(ctx, topicURL(name)+"/subscriptions")
		if topic == "" && isStatus(err, http.StatusNotFound) {
			continue // deleted since the topics were listed
		}
		if err != nil {
			return nil, err
		}
		list = append(list, part...)
	}
	return list, nil
}

func (c *apiClient) topicNames(ctx context.Context) (names []string, err error) {
	topics, err := c.all(ctx, "/v1/topics")
	for _, t := range topics {
		names = append(names, fmt.Sprint(t["name"]))
	}
	return names, err
}

type subscriptionShowCmd struct {
	oneSubscription
}

// Help is shown by subscription show --help.
func (subscriptionShowCmd) Help() string {
	return "The endpoint's query string, which often holds a secret, is not shown.\n\nExample:\n  postrider subscription show orders billing -o json"
}

// Run executes subscription show.
func (c *subscriptionShowCmd) Run(ctx context.Context) error {
	return c.show(ctx, subscriptionURL(c.Topic, c.Subscription), printSubscription)
}

type subscriptionDeleteCmd struct {
	oneSubscription
	ifMatchFlag
	confirmFlag
}

// Help is shown by subscription delete --help.
func (subscriptionDeleteCmd) Help() string {
	return `Pending deliveries are canceled. History and dead letters stay.

Examples:
  postrider subscription delete orders billing
  postrider subscription delete orders billing --yes`
}

// Run executes subscription delete.
func (c *subscriptionDeleteCmd) Run(ctx context.Context) error {
	at := subscriptionURL(c.Topic, c.Subscription)
	if err := c.confirm(func() (string, error) { return c.question(ctx, at) }); err != nil {
		return err
	}
	if err := c.call(ctx, http.MethodDelete, at, nil, nil, c.headers()...); err != nil {
		return err
	}
	return c.did(gone("topic", c.Topic, "name", c.Subscription), "Event subscription %s of topic %s was deleted.", c.Subscription, c.Topic)
}

// question says what deleting it loses.
func (c *subscriptionDeleteCmd) question(ctx context.Context, at string) (string, error) {
	if err := c.call(ctx, http.MethodGet, at, nil, nil); err != nil {
		return "", err
	}
	filter := object{"topic": c.Topic, "subscription": c.Subscription, "state": "pending"}
	pending, err := c.howMany(ctx, "/v1/deliveries", filter, "pending delivery")
	return fmt.Sprintf("Delete event subscription %s of topic %s? Its settings are lost, and %s will be canceled.",
		c.Subscription, c.Topic, pending), err
}

// printSubscription has a line for each setting; what there is none of has none.
func printSubscription(w io.Writer, s object) {
	for _, row := range [][2]string{
		{"topic", "topic"},
		{"subscription", "name"},
		{"endpoint", "endpointBaseUrl"},
		{"state", "provisioningState"},
		{"endpoint kind", "endpointKind"},
		{"delivery schema", "eventDeliverySchema"},
		{"retry policy", "retryPolicy.policy"},
		{"attempts at most", "retryPolicy.maxDeliveryAttempts"},
		{"time to live, minutes", "retryPolicy.eventTimeToLiveInMinutes"},
		{"event types", "filter.includedEventTypes"},
		{"subject begins with", "filter.subjectBeginsWith"},
		{"subject ends with", "filter.subjectEndsWith"},
		{"subject case sensitive", "filter.isSubjectCaseSensitive"},
		{"advanced filters", "filter.advancedFilters"},
		{"filters look into arrays", "filter.enableAdvancedFilteringOnArrays"},
		{"dead letters", "deadLetterDestination"},
		{"events per batch", "maxEventsPerBatch"},
		{"batch size, kilobytes", "preferredBatchSizeInKilobytes"},
		{"concurrent deliveries", "maxConcurrentDeliveries"},
		{"headers", "deliveryAttributeMappings"},
		{"signing", "signing.enabled"},
		{"behavior", "behavior"},
		{"honor Retry-After", "honorRetryAfter"},
		{"probation", "probationAction"},
		{"retry transport errors", "retryTransportErrors"},
		{"labels", "labels"},
		{"expires at", "expirationTimeUtc"},
		{"hold", "hold.reason"},
		{"held deliveries", "hold.heldDeliveries"},
		{"endpoint validation", "endpointValidation"},
		{"least TLS version", "minimumTlsVersionAllowed"},
		{"tokens from", "oauth2.tokenUrl"},
		{"created at", "createdAt"},
		{"updated at", "updatedAt"},
	} {
		value := valueAt(s, row[1])
		if list, ok := value.([]any); value == nil || value == "" || ok && len(list) == 0 {
			continue
		}
		fmt.Fprintf(w, "%s\t%s\n", row[0], oneLine(plainText(value)))
	}
	for _, row := range [][2]string{{"own authorities", "certificateAuthorities"}, {"client certificate", "clientCertificate"}} {
		if value := valueAt(s, row[1]); value != nil && value != "" {
			fmt.Fprintf(w, "%s\tyes\n", row[0]) // -o json has the certificates
		}
	}
	if valueAt(s, "validation") != nil && valueAt(s, "validation.state") != "succeeded" {
		fmt.Fprintf(w, "handshake\t%s\n", oneLine(plainText(valueAt(s, "validation.message"))))
		if link := valueAt(s, "validation.validationUrl"); link != nil {
			fmt.Fprintf(w, "to be opened\t%s\n", oneLine(plainText(link)))
		}
	}
}
