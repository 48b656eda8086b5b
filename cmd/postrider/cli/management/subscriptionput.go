package management

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// oneSubscription is a verb about one event subscription.
type oneSubscription struct {
	rest.Flags
	Topic        string `arg:"" help:"Name of the topic."`
	Subscription string `arg:"" help:"Name of the event subscription."`
}

type subscriptionCreateCmd struct {
	oneSubscription
	SettingFlags
	azureFlags
	rest.IfMatchFlag
	Replace bool `help:"Where it exists already, replace it; what is left out takes its default. So does --if-match."`
}

// Help is shown by subscription create --help.
func (subscriptionCreateCmd) Help() string {
	return `The endpoint has to answer the validation handshake first, see docs/endpoints.md; --endpoint-validation ` +
		`skip does without. Flags that the Azure
CLI has are called as there.

Examples:
  postrider subscription create orders billing --endpoint https://billing.example.com/events --max-delivery-attempts ` +
		`10 --event-ttl 60
  postrider subscription create orders large --endpoint https://audit.example.com/in --included-event-types ` +
		`Shop.OrderPlaced,Shop.OrderPaid \
    --advanced-filter 'data.total NumberGreaterThan 100' --advanced-filter 'data.city StringIn "New York" Paris' ` +
		`--policy ga-2019`
}

// Run executes subscription create.
func (c *subscriptionCreateCmd) Run(ctx context.Context) error {
	settings, err := c.Settings()
	if err != nil {
		return err
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	headers := []string{"If-None-Match", "*"}
	if c.Replace || c.IfMatch != "" {
		headers = c.Headers()
	}
	var made rest.Object
	err = terminal.Await("the endpoint answers its validation handshake", func() error {
		return client.Call(ctx, http.MethodPut, rest.SubscriptionURL(c.Topic, c.Subscription), settings, &made, headers...)
	})
	if rest.IsStatus(err, http.StatusPreconditionFailed) && c.IfMatch == "" {
		return fmt.Errorf(
			"topic %s has an event subscription %s already: change it with subscription update, or say --replace", c.Topic,
			c.Subscription)
	}
	if err != nil {
		return err
	}
	return c.Print(made, func(w io.Writer) { printSubscription(w, made) })
}

type subscriptionUpdateCmd struct {
	oneSubscription
	SettingFlags
	azureFlags
	rest.IfMatchFlag
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
	settings, err := c.Settings()
	if err != nil {
		return err
	}
	for _, path := range c.Unset {
		if err := setNull(settings, path); err != nil {
			return err
		}
	}
	if len(settings) == 0 {
		return terminal.Usagef("nothing to change: name a setting, see postrider subscription update --help")
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	var changed rest.Object
	err = terminal.Await("the endpoint answers its validation handshake", func() error {
		return client.Call(ctx, http.MethodPatch, rest.SubscriptionURL(c.Topic, c.Subscription), settings, &changed,
			c.Headers()...)
	})
	if err != nil {
		return err
	}
	return c.Print(changed, func(w io.Writer) { printSubscription(w, changed) })
}

// setNull sets what the path leads to, making the objects on the way.
func setNull(o rest.Object, path string) error {
	for name := range strings.SplitSeq(path, ".") {
		if name == "" {
			return terminal.Usagef("--unset %q: not a property such as retryPolicy.maxDeliveryAttempts", path)
		}
	}
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		inner, ok := o[name].(rest.Object)
		if !ok {
			inner = rest.Object{}
			o[name] = inner
		}
		o = inner
	}
	last := names[len(names)-1]
	if o[last] != nil {
		return terminal.Usagef("--unset %s: another flag sets it", path)
	}
	o[last] = nil
	return nil
}

type subscriptionListCmd struct {
	rest.Flags
	Topic string `arg:"" optional:"" help:"Name of the topic; all topics where it is left out."`
}

// Help is shown by subscription list --help.
func (subscriptionListCmd) Help() string {
	return "Examples:\n  postrider subscription list orders\n  postrider subscription list -o json"
}

// Run executes subscription list.
func (c *subscriptionListCmd) Run(ctx context.Context) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	list, err := subscriptionsOf(ctx, client, c.Topic)
	if err != nil {
		return err
	}
	return c.Print(list, func(w io.Writer) { rest.PrintColumns(w, subscriptionColumns, list) })
}

var subscriptionColumns = []rest.Column{
	{Title: "TOPIC", Path: "topic"},
	{Title: "SUBSCRIPTION", Path: "name"},
	{Title: "ENDPOINT", Path: "endpointBaseUrl"},
	{Title: "POLICY", Path: "retryPolicy.policy"},
	{Title: "ATTEMPTS", Path: "retryPolicy.maxDeliveryAttempts"},
	{Title: "TTL, MINUTES", Path: "retryPolicy.eventTimeToLiveInMinutes"},
	{Title: "STATE", Path: "provisioningState"},
	{Title: "HOLD", Path: "hold.reason"},
}

// subscriptionsOf lists the event subscriptions of a topic, or of all topics: "".
func subscriptionsOf(ctx context.Context, c *rest.Client, topic string) (list []rest.Object, err error) {
	topics := []string{topic}
	if topic == "" {
		if topics, err = topicNames(ctx, c); err != nil {
			return nil, err
		}
	}
	list = []rest.Object{}
	for _, name := range topics {
		part, err := c.All(ctx, rest.TopicURL(name)+"/subscriptions")
		if topic == "" && rest.IsStatus(err, http.StatusNotFound) {
			continue // deleted since the topics were listed
		}
		if err != nil {
			return nil, err
		}
		list = append(list, part...)
	}
	return list, nil
}

func topicNames(ctx context.Context, c *rest.Client) (names []string, err error) {
	topics, err := c.All(ctx, "/v1/topics")
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
	return "The endpoint's query string, which often holds a secret, is not shown.\n\nExample:\n  postrider " +
		"subscription show orders billing -o json"
}

// Run executes subscription show.
func (c *subscriptionShowCmd) Run(ctx context.Context) error {
	return c.Show(ctx, rest.SubscriptionURL(c.Topic, c.Subscription), printSubscription)
}

type subscriptionDeleteCmd struct {
	oneSubscription
	rest.IfMatchFlag
	terminal.ConfirmFlag
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
	at := rest.SubscriptionURL(c.Topic, c.Subscription)
	if err := c.Confirm(func() (string, error) { return c.question(ctx, at) }); err != nil {
		return err
	}
	if err := c.Call(ctx, http.MethodDelete, at, nil, nil, c.Headers()...); err != nil {
		return err
	}
	return c.Done(terminal.Deleted("topic", c.Topic, "name", c.Subscription),
		"Event subscription %s of topic %s was deleted.", c.Subscription, c.Topic)
}

// question says what deleting it loses.
func (c *subscriptionDeleteCmd) question(ctx context.Context, at string) (string, error) {
	if err := c.Call(ctx, http.MethodGet, at, nil, nil); err != nil {
		return "", err
	}
	filter := rest.Object{"topic": c.Topic, "subscription": c.Subscription, "state": "pending"}
	pending, err := c.HowMany(ctx, "/v1/deliveries", filter, "pending delivery")
	return fmt.Sprintf("Delete event subscription %s of topic %s? Its settings are lost, and %s will be canceled.",
		c.Subscription, c.Topic, pending), err
}

// printSubscription has a line for each setting; what there is none of has none.
func printSubscription(w io.Writer, s rest.Object) {
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
		value := rest.ValueAt(s, row[1])
		if list, ok := value.([]any); value == nil || value == "" || ok && len(list) == 0 {
			continue
		}
		fmt.Fprintf(w, "%s\t%s\n", row[0], terminal.OneLine(terminal.PlainText(value)))
	}
	for _, row := range [][2]string{
		{"own authorities", "certificateAuthorities"}, {"client certificate", "clientCertificate"},
	} {
		if value := rest.ValueAt(s, row[1]); value != nil && value != "" {
			fmt.Fprintf(w, "%s\tyes\n", row[0]) // -o json has the certificates
		}
	}
	if rest.ValueAt(s, "validation") != nil && rest.ValueAt(s, "validation.state") != "succeeded" {
		fmt.Fprintf(w, "handshake\t%s\n", terminal.OneLine(terminal.PlainText(rest.ValueAt(s, "validation.message"))))
		if link := rest.ValueAt(s, "validation.validationUrl"); link != nil {
			fmt.Fprintf(w, "to be opened\t%s\n", terminal.OneLine(terminal.PlainText(link)))
		}
	}
}
