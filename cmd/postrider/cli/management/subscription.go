package management

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"

	"postrider/catalog/spec"
	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// SubscriptionCmd is subscription with its verbs.
type SubscriptionCmd struct {
	Create subscriptionCreateCmd `cmd:"" help:"Create an event subscription." detail:"The endpoint must pass the validation handshake first, see docs/guides/receive.md; --endpoint-validation skip does without it. Flags that the Azure CLI has are written as there, except lists: their values are separated by commas, or the flag is repeated." example:"subscription create orders billing --endpoint https://billing.example.com/events --max-delivery-attempts 10 --event-ttl 60; subscription create orders large --endpoint https://audit.example.com/in --included-event-types Shop.OrderPlaced,Shop.OrderPaid --advanced-filter 'data.total NumberGreaterThan 100' --advanced-filter 'data.city StringIn \"New York\" Paris' --policy ga-2019"`
	Update subscriptionUpdateCmd `cmd:"" help:"Change some settings of an event subscription." detail:"Settings that you do not name stay as they are. Lists are replaced as a whole." example:"subscription update orders billing --max-delivery-attempts 5 --labels billing,team-a; subscription update orders billing --unset retryPolicy.maxDeliveryAttempts --unset labels"`
	List   subscriptionListCmd   `cmd:"" help:"List a topic's event subscriptions, or all." example:"subscription list orders; subscription list -o json"`
	Show   subscriptionShowCmd   `cmd:"" help:"Show an event subscription with its effective settings." detail:"The endpoint's query string, which often holds a secret, is not shown." example:"subscription show orders billing -o json"`
	Delete subscriptionDeleteCmd `cmd:"" help:"Delete an event subscription and cancel its pending deliveries." detail:"History and dead letters stay." example:"subscription delete orders billing; subscription delete orders billing --yes"`

	TestFilter testFilterCmd `cmd:"" help:"Show which events an event subscription's filter matches, and which clause decided." detail:"Nothing is stored or delivered. Every clause that an event does not pass is shown; JSON has each clause." example:"subscription test-filter orders billing; subscription test-filter orders billing --event order.json -o json; subscription test-filter orders billing --filter filter.json"`
	Pause      pauseCmd      `cmd:"" action:"pause" done:"paused" help:"Hold an event subscription's deliveries until it is resumed." detail:"Nothing is lost: events that are published meanwhile are held too. The pause holds from the next publish on every node; attempts that are in progress, or begin within 100 ms, finish." example:"subscription pause orders billing; subscription pause orders billing --stop-time-to-live"`
	Resume     actionCmd     `cmd:"" action:"resume" done:"resumed" help:"End a pause." detail:"Held deliveries are released in waves by the service. Resuming an event subscription that is not paused changes nothing." example:"subscription resume orders billing"`
	Release    actionCmd     `cmd:"" action:"release" done:"released" help:"End a probation without waiting for its probe." detail:"If the policy holds the endpoint as a whole, the probation ends for all event subscriptions that share it." example:"subscription release orders billing"`
	Probe      actionCmd     `cmd:"" action:"probe" done:"one delivery is let through now" help:"Let one delivery through a probation now." detail:"Its success ends the probation, its failure begins the next hold. If the policy holds the endpoint as a whole, it is for all event subscriptions that share it. subscription release ends a probation without a probe." example:"subscription probe orders billing"`

	Validate       validateCmd       `cmd:"" help:"Run the validation handshake with the endpoint again." detail:"You can run it at any time, also after a failed validation. If the endpoint fails it, nothing is changed." example:"subscription validate orders billing"`
	TestDelivery   testDeliveryCmd   `cmd:"" help:"Send a sample event to an event subscription alone." detail:"An event of type postrider.TestEvent is stored and delivered to this event subscription only, whatever its filter. delivery show shows the endpoint's response." example:"subscription test-delivery orders billing"`
	Reveal         revealCmd         `cmd:"" help:"Show the endpoint's whole URL and the custom headers, secrets included." detail:"Needs an administrator's key, and is recorded in the audit." example:"subscription reveal orders billing -o json"`
	SigningSecrets signingSecretsCmd `cmd:"" help:"Show the secrets that deliveries are signed with, or replace the newest." detail:"Needs an administrator's key, and is recorded in the audit. To replace a secret without an outage, use --rotate and give the new secret to the receiver while both sign; see docs/guides/receive.md#signatures." example:"subscription signing-secrets orders billing; subscription signing-secrets orders billing --rotate --previous-valid-for-hours 48"`
}

// NewSubscriptionCmd has the flags of all settings.
func NewSubscriptionCmd() (c SubscriptionCmd) {
	c.Create.SettingFlags, c.Update.SettingFlags = newSettingFlags(spec.Subscription), newSettingFlags(spec.Subscription)
	return c
}

// SettingFlags are the settings of an event subscription. Flags that the Azure CLI has are named as there. Source:
// Microsoft, Azure CLI reference, az eventgrid event-subscription create and update, 2026-05.
type SettingFlags struct {
	TableFlags
	EndpointType       string `help:"webhook is the only type." placeholder:"TYPE"`
	DeadletterEndpoint string `name:"deadletter-endpoint" help:"Destination of events that cannot be delivered: rows, none, a location that serve allows (file://, s3://, azblob://), or the resource id of a storage container." placeholder:"WHERE"`
}

func newSettingFlags(table []spec.Setting) SettingFlags {
	return SettingFlags{TableFlags: NewTableFlags(table, "Beyond the Azure CLI:")}
}

// Settings are the settings that were given, as the REST API takes them.
func (f *SettingFlags) Settings() (rest.Object, error) {
	if f.EndpointType != "" && !strings.EqualFold(f.EndpointType, "webhook") {
		return nil, terminal.Usagef("--endpoint-type %s: postrider delivers to webhook endpoints only", f.EndpointType)
	}
	settings, err := f.TableFlags.Settings()
	if err == nil && f.DeadletterEndpoint != "" {
		settings["deadLetterDestination"] = deadLettersTo(f.DeadletterEndpoint)
	}
	return settings, err
}

// oneSubscription is a verb about one event subscription.
type oneSubscription struct {
	rest.Flags
	Topic        string `arg:"" help:"Name of the topic."`
	Subscription string `arg:"" help:"Name of the event subscription."`
}

func (c *oneSubscription) url() string { return rest.SubscriptionURL(c.Topic, c.Subscription) }

// awaited makes a request that lasts as long as the validation handshake, and prints the event subscription.
func (c *oneSubscription) awaited(ctx context.Context, method, url string, body any, headers ...string) error {
	var now rest.Object
	err := terminal.Await("the endpoint responds to the validation handshake", func() error {
		return c.Call(ctx, method, url, body, &now, headers...)
	})
	if err != nil {
		return err
	}
	return c.Print(now, func(w io.Writer) { printSubscription(w, now) })
}

type subscriptionCreateCmd struct {
	oneSubscription
	SettingFlags
	azureFlags
	rest.IfMatchFlag
	Replace bool `help:"Replace the event subscription if it exists; settings that you leave out take their defaults. --if-match does the same."`
}

// Run executes subscription create.
func (c *subscriptionCreateCmd) Run(ctx context.Context) error {
	settings, err := c.Settings()
	if err != nil {
		return err
	}
	headers := []string{"If-None-Match", "*"}
	if c.Replace || c.IfMatch != "" {
		headers = c.Headers()
	}
	err = c.awaited(ctx, http.MethodPut, c.url(), settings, headers...)
	if rest.IsStatus(err, http.StatusPreconditionFailed) && c.IfMatch == "" {
		return fmt.Errorf("topic %s has an event subscription %s already: change it with subscription update, or use "+
			"--replace", c.Topic, c.Subscription)
	}
	return err
}

type subscriptionUpdateCmd struct {
	oneSubscription
	SettingFlags
	azureFlags
	rest.IfMatchFlag
	Unset []string `help:"Set a setting to its default; its name is the API's, such as maxEventsPerBatch or retryPolicy.maxDeliveryAttempts." placeholder:"PROPERTY"`
}

// Run executes subscription update.
func (c *subscriptionUpdateCmd) Run(ctx context.Context) error {
	settings, err := c.Settings()
	if err != nil {
		return err
	}
	for _, path := range c.Unset {
		switch {
		case strings.Contains("."+path+".", ".."):
			return terminal.Usagef("--unset %q: not a property such as retryPolicy.maxDeliveryAttempts", path)
		case rest.ValueAt(settings, path) != nil:
			return terminal.Usagef("--unset %s: another flag sets it", path)
		}
		setAt(settings, path, nil)
	}
	if len(settings) == 0 {
		return terminal.Usagef("nothing to change: name a setting, see postrider subscription update --help")
	}
	return c.awaited(ctx, http.MethodPatch, c.url(), settings, c.Headers()...)
}

type subscriptionListCmd struct {
	rest.Flags
	Topic string `arg:"" optional:"" help:"Name of the topic; without it, all topics."`
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
func subscriptionsOf(ctx context.Context, c *rest.Client, topic string) ([]rest.Object, error) {
	if topic != "" {
		return c.All(ctx, rest.TopicURL(topic)+"/subscriptions")
	}
	topics, err := c.All(ctx, "/v1/topics")
	list := []rest.Object{}
	for _, t := range topics {
		var part []rest.Object
		part, err = subscriptionsOf(ctx, c, textOf(t["name"]))
		switch {
		case rest.IsStatus(err, http.StatusNotFound): // deleted since the topics were listed
			err = nil
		case err != nil:
			return nil, err
		}
		list = append(list, part...)
	}
	return list, err
}

type subscriptionShowCmd struct{ oneSubscription }

// Run executes subscription show.
func (c *subscriptionShowCmd) Run(ctx context.Context) error {
	return c.Show(ctx, c.url(), printSubscription)
}

type subscriptionDeleteCmd struct {
	oneSubscription
	deleteFlags
}

// Run executes subscription delete.
func (c *subscriptionDeleteCmd) Run(ctx context.Context) error {
	question := func() (string, error) {
		filter := rest.Object{"topic": c.Topic, "subscription": c.Subscription, "state": "pending"}
		pending, err := c.HowMany(ctx, "/v1/deliveries", filter, "pending delivery")
		return fmt.Sprintf("Delete event subscription %s of topic %s? Its settings are lost, and %s will be canceled.",
			c.Subscription, c.Topic, pending), err
	}
	return c.delete(ctx, c.Flags, c.url(), question,
		fmt.Sprintf("Event subscription %s of topic %s", c.Subscription, c.Topic), "topic", c.Topic, "name", c.Subscription)
}

// deleteFlags are those of verbs that delete one object.
type deleteFlags struct {
	rest.IfMatchFlag
	terminal.ConfirmFlag
}

// delete confirms and deletes the object at the path. names are members of the object and their values.
func (d *deleteFlags) delete(
	ctx context.Context, f rest.Flags, path string, question func() (string, error), thing string, names ...string,
) error {
	err := d.Confirm(func() (string, error) {
		if err := f.Call(ctx, http.MethodGet, path, nil, nil); err != nil {
			return "", err
		}
		return question()
	})
	if err != nil {
		return err
	}
	if err := f.Call(ctx, http.MethodDelete, path, nil, nil, d.Headers()...); err != nil {
		return err
	}
	return f.Done(terminal.Deleted(names...), "%s was deleted.", thing)
}

func printSubscription(w io.Writer, s rest.Object) {
	printLines(w, s, "topic topic", "subscription name", "endpoint endpointBaseUrl", "state provisioningState")
	printSettings(w, spec.Subscription, s)
	printLines(w, s, "hold hold.reason", "held deliveries hold.heldDeliveries", "created at createdAt",
		"updated at updatedAt")
	if rest.ValueAt(s, "validation.state") != "succeeded" {
		printLines(w, s, "handshake validation.message", "link to open validation.validationUrl")
	}
}

// printSettings writes a line for each setting that has a value.
func printSettings(w io.Writer, table []spec.Setting, o rest.Object) {
	for i := range table {
		label := []rune(table[i].Label)
		if len(label) > 1 && unicode.IsLower(label[1]) { // not of URL
			label[0] = unicode.ToLower(label[0])
		}
		value := valueAt(o, table[i].Name)
		switch {
		case value != nil && table[i].Kind == spec.PEM:
			fmt.Fprintf(w, "%s\tyes\n", string(label)) // -o json has the certificates
		case value != nil:
			fmt.Fprintf(w, "%s\t%s\n", string(label), terminal.OneLine(terminal.PlainText(value)))
		}
	}
}

// printLines writes a line for each value: its title and, behind the last space, its path.
func printLines(w io.Writer, o rest.Object, lines ...string) {
	for _, line := range lines {
		space := strings.LastIndexByte(line, ' ')
		if value := valueAt(o, line[space+1:]); value != nil {
			fmt.Fprintf(w, "%s\t%s\n", line[:space], terminal.OneLine(terminal.PlainText(value)))
		}
	}
}
