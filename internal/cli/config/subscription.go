// Package config has the verbs for topics, event subscriptions and retry policies, and apply, which reads all of
// them from a file. They are clients of the REST API.
package config

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"postrider/internal/catalog/spec"
	"postrider/internal/cli/rest"
	"postrider/internal/destination"
	"postrider/internal/terminal"
	v1 "postrider/server/v1"
)

// SubscriptionCmd is subscription with its verbs.
type SubscriptionCmd struct {
	Create subscriptionCreateCmd `cmd:"" help:"Create an event subscription."`
	Update subscriptionUpdateCmd `cmd:"" help:"Change some settings of an event subscription." detail:"Settings that you do not name stay as they are. Lists are replaced as a whole." example:"subscription update orders billing --max-delivery-attempts 5 --labels billing,team-a; subscription update orders billing --unset retryPolicy.maxDeliveryAttempts --unset labels"`
	List   subscriptionListCmd   `cmd:"" help:"List a topic's event subscriptions, or all." example:"subscription list orders; subscription list -o json"`
	Show   subscriptionShowCmd   `cmd:"" help:"Show an event subscription with its effective settings." detail:"The endpoint's query string, which often holds a secret, is not shown, nor are the keys of other destinations." example:"subscription show orders billing -o json"`
	Delete subscriptionDeleteCmd `cmd:"" help:"Delete an event subscription and cancel its pending deliveries." detail:"History and dead letters stay." example:"subscription delete orders billing; subscription delete orders billing --yes"`

	TestFilter testFilterCmd                  `cmd:"" help:"Show which events an event subscription's filter matches, and which clause decided." detail:"Nothing is stored or delivered. The table shows the clauses that an event does not pass; JSON has all clauses." example:"subscription test-filter orders billing; subscription test-filter orders billing --event order.json -o json; subscription test-filter orders billing --filter filter.json"`
	Pause      rest.ActVerb[pauseArgs]        `cmd:"" done:"Event subscription {subscription} of topic {topic}: paused." help:"Hold an event subscription's deliveries until it is resumed." detail:"Nothing is lost: events that are published during the pause are held, too. The pause applies to the next publish on every node. Attempts that are in progress, or begin within 100 ms, finish." example:"subscription pause orders billing; subscription pause orders billing --stop-time-to-live"`
	Resume     rest.ActVerb[subscriptionArgs] `cmd:"" done:"Event subscription {subscription} of topic {topic}: resumed." help:"End a pause." detail:"The service releases held deliveries in waves. Resuming an event subscription that is not paused changes nothing." example:"subscription resume orders billing"`
	Release    rest.ActVerb[subscriptionArgs] `cmd:"" done:"Event subscription {subscription} of topic {topic}: released." help:"End a probation without waiting for its probe." detail:"If the policy holds the endpoint as a whole, the probation ends for all event subscriptions that share it." example:"subscription release orders billing"`
	Probe      rest.ActVerb[subscriptionArgs] `cmd:"" done:"Event subscription {subscription} of topic {topic}: one delivery is attempted now." help:"Attempt one delivery of a probation now." detail:"A success ends the probation, a failure begins the next one. If the policy holds the whole endpoint, this applies to all event subscriptions that share it. subscription release needs no probe." example:"subscription probe orders billing"`

	Validate       validateCmd                    `cmd:"" help:"Run the validation handshake with the endpoint again." detail:"You can run it at any time, also after a failed validation. A failure changes nothing." example:"subscription validate orders billing"`
	TestDelivery   rest.ActVerb[subscriptionArgs] `cmd:"" done:"The sample event is delivery {deliveryId}; see postrider delivery show {deliveryId}." help:"Send a sample event to one event subscription." detail:"An event of type postrider.TestEvent is stored and delivered to this event subscription only, regardless of its filter. delivery show shows the endpoint's response." example:"subscription test-delivery orders billing"`
	Reveal         revealCmd                      `cmd:"" help:"Show the endpoint's whole URL and the custom headers, including secrets." detail:"Requires an administrator's key. The audit records it. Keys and passwords of destinations are not shown again: replace them with subscription update." example:"subscription reveal orders billing -o json"`
	SigningSecrets signingSecretsCmd              `cmd:"" help:"Show the secrets that sign deliveries, or replace the newest."`
}

// NewSubscriptionCmd returns the verbs with flags for all settings.
func NewSubscriptionCmd() (c SubscriptionCmd) {
	c.Create.SettingFlags, c.Update.SettingFlags = newSettingFlags(spec.Subscription), newSettingFlags(spec.Subscription)
	return c
}

// SettingFlags are flags for the settings of an event subscription, with the names of the Azure CLI. Source: Microsoft,
// Azure CLI reference, az eventgrid event-subscription create and update, 2026-05.
type SettingFlags struct {
	TableFlags
	DeadletterEndpoint string `name:"deadletter-endpoint" help:"Destination of events that cannot be delivered: rows, none, a location that serve allows (file://, s3://, azblob://), or the resource id of a storage container." placeholder:"WHERE"`
}

func newSettingFlags(table []spec.Setting) SettingFlags {
	return SettingFlags{TableFlags: NewTableFlags(table, "Beyond the Azure CLI:")}
}

// Settings returns the settings of the flags in the form of the REST API.
func (f *SettingFlags) Settings(stdin io.Reader) (rest.Object, error) {
	settings, err := f.TableFlags.Settings(stdin)
	if err != nil {
		return nil, err
	}
	if f.DeadletterEndpoint != "" {
		settings["deadLetterDestination"] = deadLettersTo(f.DeadletterEndpoint)
	}
	return settings, addressed(settings)
}

// azureTypes are the Azure CLI's types of destinations that postrider does not have, and what to do instead.
var azureTypes = map[string]string{
	"azurefunction":      "use --endpoint-type webhook with the URL of the function's HTTP trigger",
	"namespacetopic":     "deliver to a webhook or a queue, and publish from there",
	"partnerdestination": "deliver to a webhook that calls the partner",
	"monitoralert":       "deliver to a webhook that raises the alert",
}

// addressed moves --endpoint to the setting of the destination: the Azure CLI has one flag for URLs and resource ids.
func addressed(settings rest.Object) error {
	kind, endpoint := rest.TextAt(settings, "destination.endpointType"), textOf(settings["endpointUrl"])
	id, property := strings.HasPrefix(endpoint, "/"), "endpoint"
	if id {
		property = "resourceId"
	}
	instead, unsupported := azureTypes[strings.ToLower(kind)]
	at := "destination.properties." + property
	switch {
	case unsupported:
		return terminal.Usagef("--endpoint-type %s is not supported: %s", kind, instead)
	case endpoint == "":
		return nil
	case rest.ValueAt(settings, "destination") == nil && id:
		return terminal.Usagef("--endpoint %s is the id of a resource: add --endpoint-type, such as servicebusqueue",
			endpoint)
	case kind == "-" || kind == string(destination.WebHook):
		return nil
	case destination.Type(kind) == destination.Kafka:
		return terminal.Usagef("--endpoint is not for Kafka: use --servers HOST:PORT and --kafka-topic NAME")
	case destination.Type(kind) == destination.NatsJetStream:
		return terminal.Usagef("--endpoint is not for NatsJetStream: use --servers HOST:PORT and --nats-subject NAME")
	case rest.ValueAt(settings, at) != nil:
		return terminal.Usagef("--endpoint and --%s are the same setting: omit one of them",
			spec.Find(spec.Subscription, at).FlagName())
	}
	delete(settings, "endpointUrl")
	setAt(settings, at, endpoint)
	return nil
}

type subscriptionArgs struct {
	Topic        string `arg:"" predictor:"topic" help:"Name of the topic."`
	Subscription string `arg:"" predictor:"subscription" help:"Name of the event subscription."`
}

// Path returns the path of the event subscription.
func (a subscriptionArgs) Path() string { return rest.SubscriptionURL(a.Topic, a.Subscription) }

type pauseArgs struct {
	subscriptionArgs
	StopTimeToLive *bool `api:"stopTimeToLive" help:"The pause does not count toward the time to live of held events; with --no-stop-time-to-live it does. Without either, this does not change." negatable:""`
}

// oneSubscription has the flags of verbs about one event subscription.
type oneSubscription struct {
	rest.Flags
	subscriptionArgs
}

// awaited makes a request that includes the validation handshake, and prints the event subscription.
func (c *oneSubscription) awaited(
	ctx context.Context, std terminal.Streams, client *rest.Client, method, url string, body any, headers ...string,
) error {
	var now rest.Object
	err := terminal.Await(std.Err, "the endpoint responds to the validation handshake", func() error {
		return client.Call(ctx, method, url, body, &now, headers...)
	})
	if err != nil {
		return err
	}
	return c.Print(std.Out, now, func(w io.Writer) { printSubscription(w, now) })
}

type subscriptionCreateCmd struct {
	oneSubscription
	SettingFlags
	azureFlags
	rest.IfMatchFlag
	Replace bool `help:"Replace the event subscription if it exists; settings that you omit get their defaults. --if-match does the same."`
}

// Help is shown by subscription create --help.
func (subscriptionCreateCmd) Help() string {
	return `With --delivery-mode Queue, consumers receive the events and there is no endpoint. Otherwise a webhook must
pass the validation handshake first, see docs/guides/receive.md, unless you set --endpoint-validation skip. Flags of
the Azure CLI have the same syntax. You can also separate the values of a list by commas, or repeat the flag.

Another --endpoint-type than webhook delivers to a service of Azure, or to a broker. --endpoint is then the id of the
resource, or the URL of its namespace. Keys and passwords come from files and are not shown again.

Examples:
  postrider subscription create orders billing --endpoint https://billing.example.com/events \
    --max-delivery-attempts 10 --event-ttl 60
  postrider subscription create orders large --endpoint https://audit.example.com/in \
    --included-event-types Shop.OrderPlaced,Shop.OrderPaid \
    --advanced-filter 'data.total NumberGreaterThan 100' \
    --advanced-filter 'data.city StringIn "New York" Paris' --policy ga-2019
  postrider subscription create orders audit --delivery-mode Queue --lock-duration 120 --max-delivery-count 5 \
    --event-time-to-live P1D
  postrider subscription create orders bus --endpoint-type servicebusqueue --endpoint \
    /subscriptions/ID/resourceGroups/shop/providers/Microsoft.ServiceBus/namespaces/shop/queues/orders \
    --shared-access-key-name send --primary-key-file send.key
  postrider subscription create orders stream --endpoint-type kafka --servers kafka-1.example.com:9093 \
    --kafka-topic orders --sasl-mechanism SCRAM-SHA-512 --username postrider --password-file kafka.password`
}

func (c *subscriptionCreateCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	settings, err := c.Settings(std.In)
	if err != nil {
		return err
	}
	if rest.ValueAt(settings, "signing.secret") != nil && rest.ValueAt(settings, "signing.enabled") == nil {
		setAt(settings, "signing.enabled", true)
	}
	headers := []string{"If-None-Match", "*"}
	if c.Replace || c.IfMatch != "" {
		headers = c.Headers()
	}
	err = c.awaited(ctx, std, client, http.MethodPut, c.Path(), settings, headers...)
	if rest.IsStatus(err, http.StatusPreconditionFailed) && c.IfMatch == "" {
		return fmt.Errorf("event subscription %s of topic %s exists already: change it with subscription update, or use "+
			"--replace", c.Subscription, c.Topic)
	}
	return err
}

type subscriptionUpdateCmd struct {
	oneSubscription
	SettingFlags
	azureFlags
	rest.IfMatchFlag
	Unset []string `help:"Reset a setting to its default, by its name in the API, such as maxEventsPerBatch or retryPolicy.maxDeliveryAttempts." placeholder:"PROPERTY"`
}

func (c *subscriptionUpdateCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	settings, err := c.Settings(std.In)
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
		return terminal.Usagef("no setting to change: see postrider subscription update --help")
	}
	return c.awaited(ctx, std, client, http.MethodPatch, c.Path(), settings, c.Headers()...)
}

type subscriptionListCmd struct {
	rest.Flags
	Topic string `arg:"" optional:"" predictor:"topic" help:"Name of the topic; without it, all topics."`
}

func (c *subscriptionListCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	list, err := subscriptionsOf(ctx, client, c.Topic)
	if err != nil {
		return err
	}
	return c.Print(std.Out, list, func(w io.Writer) { rest.PrintColumns(w, subscriptionColumns, list) })
}

// subscriptionColumns end with the settings that lists show.
var subscriptionColumns = func() []rest.Column {
	columns := slices.Insert(rest.Columns("TOPIC topic", "SUBSCRIPTION name",
		"ENDPOINT endpointBaseUrl", "POLICY retryPolicy.policy", "ATTEMPTS retryPolicy.maxDeliveryAttempts",
		"TTL, MINUTES retryPolicy.eventTimeToLiveInMinutes", "STATE provisioningState", "HOLD hold.reason"),
		2, rest.Column{Title: "TYPE", Text: typeOf})
	for _, s := range spec.Subscription {
		if s.Listed {
			columns = append(columns, rest.Column{Title: strings.ToUpper(s.Label), Path: s.Name})
		}
	}
	return columns
}()

// typeOf is the type of the destination, or pull.
func typeOf(o rest.Object) string {
	if pulled(o) {
		return "pull"
	}
	return cmp.Or(textOf(rest.ValueAt(o, "destination.endpointType")), string(destination.WebHook))
}

// pulled reports whether consumers receive the events of an event subscription.
func pulled(o rest.Object) bool {
	return rest.ValueAt(o, "deliveryConfiguration.deliveryMode") == "Queue"
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

func (c *subscriptionShowCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	return c.Do(ctx, std, client, http.MethodGet, c.Path(), nil, printSubscription)
}

type subscriptionDeleteCmd struct {
	oneSubscription
	deleteFlags
}

func (c *subscriptionDeleteCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	question := func() (string, error) {
		filter := rest.Object{"topic": c.Topic, "subscription": c.Subscription, "state": "pending"}
		pending, err := client.Count(ctx, "/v1/deliveries", filter, "pending delivery")
		return fmt.Sprintf("Delete event subscription %s of topic %s? Its settings are lost, and %s will be canceled.",
			c.Subscription, c.Topic, pending), err
	}
	return c.delete(ctx, std, client, c.Flags, c.Path(), question,
		fmt.Sprintf("Event subscription %s of topic %s was deleted.", c.Subscription, c.Topic),
		rest.Object{"topic": c.Topic, "name": c.Subscription})
}

// deleteFlags are the flags of verbs that delete one object.
type deleteFlags struct {
	rest.IfMatchFlag
	terminal.ConfirmFlag
}

// delete is rest.Flags.Delete after a confirmation.
func (d *deleteFlags) delete(
	ctx context.Context, std terminal.Streams, client *rest.Client, f rest.Flags, path string,
	question func() (string, error), done string, names rest.Object,
) error {
	err := d.Confirm(std, func() (string, error) {
		if err := client.Call(ctx, http.MethodGet, path, nil, nil); err != nil {
			return "", err
		}
		return question()
	})
	if err != nil {
		return err
	}
	return f.Delete(ctx, std, client, path, done, names, d.Headers()...)
}

func printSubscription(w io.Writer, s rest.Object) {
	to := terminal.Either(rest.ValueAt(s, "destination") == nil, "endpoint", "target")
	rest.PrintLines(w, s, "topic topic", "subscription name", to+" endpointBaseUrl", "state provisioningState")
	table := spec.Subscription
	if pulled(s) {
		table = slices.DeleteFunc(slices.Clone(table), func(s spec.Setting) bool { return spec.OfRequests(&s) })
	}
	printSettings(w, table, s)
	rest.PrintLines(w, s, "lower limit of its host hostRateLimit", "hold hold.reason",
		"held deliveries hold.heldDeliveries", "rate limited, waiting throttling.waiting",
		"endpoint closed until throttling.closedUntil", "backlog drains at throttling.drainsAt",
		"created at createdAt", "updated at updatedAt")
	if rest.ValueAt(s, "validation.state") != "succeeded" {
		rest.PrintLines(w, s, "handshake validation.message", "link to open validation.validationUrl")
	}
}

// printSettings writes a line for each setting that has a value, under one of its names.
func printSettings(w io.Writer, table []spec.Setting, o rest.Object) {
	for i := range table {
		label := []rune(table[i].Label)
		if len(label) > 1 && unicode.IsLower(label[1]) { // not in "URL"
			label[0] = unicode.ToLower(label[0])
		}
		value := rest.PresentAt(o, table[i].Name)
		switch {
		case table[i].Section == "":
		case value != nil && table[i].Kind == spec.PEM:
			fmt.Fprintf(w, "%s\tyes\n", string(label)) // -o json has the certificates
		case value != nil:
			fmt.Fprintf(w, "%s\t%s\n", string(label), terminal.OneLine(terminal.PlainText(value)))
		}
	}
}

type validateCmd struct{ oneSubscription }

func (c *validateCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	return c.awaited(ctx, std, client, http.MethodPost, c.Path()+"/validate", nil)
}

type revealCmd struct{ oneSubscription }

func (c *revealCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	var endpoint, headers rest.Object
	if err := client.Call(ctx, http.MethodPost, c.Path()+"/getFullUrl", nil, &endpoint); err != nil {
		return err
	}
	if err := client.Call(ctx, http.MethodPost, c.Path()+"/getDeliveryAttributes", nil, &headers); err != nil {
		return err
	}
	shown := rest.Object{"endpointUrl": endpoint["endpointUrl"], "deliveryAttributeMappings": headers["value"]}
	return c.Print(std.Out, shown, func(w io.Writer) {
		fmt.Fprintf(w, "endpoint\t%s\n", cmp.Or(textOf(shown["endpointUrl"]), "none (keys of a destination are not shown)"))
		for _, header := range rest.Objects(shown, "deliveryAttributeMappings") {
			value := rest.TextAt(header, "properties.value")
			if path := rest.TextAt(header, "properties.sourceField"); path != "-" {
				value = "from each event: " + path
			}
			fmt.Fprintf(w, "header %s\t%s\n", rest.TextAt(header, "name"), value)
		}
	})
}

// testedFlags choose the events to test a filter with.
type testedFlags struct {
	Event string `help:"Test with the one event in this file, in the topic's input schema; - reads it from standard input." xor:"events" placeholder:"FILE"`
	Last  *int   `api:"last" help:"Test with the topic's last N events: 1 to 50 (default 50)." xor:"events" placeholder:"N"`
}

// run tests the filter in a file, or the stored filter of the path, and prints the result for each event.
func (f *testedFlags) run(
	ctx context.Context, std terminal.Streams, client *rest.Client, out rest.Flags, path, filterFile string,
) error {
	if f.Last != nil && (*f.Last < 1 || *f.Last > v1.MaxTestedEvents) {
		return terminal.Usagef("--last %d: must be 1 to %d", *f.Last, v1.MaxTestedEvents)
	}
	if f.Event == "-" && filterFile == "-" {
		return terminal.Usagef("--event and --filter cannot both be read from standard input")
	}
	test := rest.Given(f)
	for name, file := range map[string]string{"filter": filterFile, "event": f.Event} {
		if file == "" {
			continue
		}
		text, err := terminal.ReadFileOrInput(std.In, file)
		if err != nil {
			return err
		}
		if !json.Valid(text) {
			return terminal.Usagef("%s: must be one JSON document", file)
		}
		test[name] = json.RawMessage(text)
	}
	var tested v1.FilterResults
	if err := client.Call(ctx, http.MethodPost, path+"/testFilter", test, &tested); err != nil {
		return err
	}
	return out.Print(std.Out, tested, func(w io.Writer) {
		fmt.Fprintln(w, "EVENT ID\tTYPE\tSUBJECT\tMATCHED\tCLAUSE\tWHY NOT")
		matched := 0
		for _, result := range tested.Value {
			line := fmt.Sprintf("%s\t%s\t%s\t", terminal.Cell(result.ID), terminal.Cell(result.EventType),
				terminal.Cell(result.Subject))
			if result.Matched {
				matched++
				fmt.Fprintln(w, line+"yes\t\t")
			}
			line += "no"
			for _, clause := range result.Clauses {
				if !clause.Passed {
					fmt.Fprintf(w, "%s\t%s\t%s\n", line, clause.Clause, terminal.OneLine(*clause.Why))
					line = "\t\t\t"
				}
			}
		}
		fmt.Fprintf(w, "(%d of %s matched)\n", matched, terminal.Plural(len(tested.Value), "event"))
	})
}

type testFilterCmd struct {
	oneSubscription
	testedFlags
	Filter string `help:"Test the filter in this file instead of the stored one, JSON as the filter of an event subscription; - reads it from standard input." placeholder:"FILE"`
}

func (c *testFilterCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	path := c.Path()
	if c.Filter != "" { // only the topic's operation accepts a filter
		path = rest.TopicURL(c.Topic)
	}
	return c.run(ctx, std, client, c.Flags, path, c.Filter)
}

type topicTestFilterCmd struct {
	oneTopic
	testedFlags
	Filter string `required:"" help:"File with the filter, JSON as the filter of an event subscription; - reads it from standard input." placeholder:"FILE"`
}

func (c *topicTestFilterCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	return c.run(ctx, std, client, c.Flags, rest.TopicURL(c.Topic), c.Filter)
}
