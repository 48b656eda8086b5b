package management

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// TopicCmd is topic with its verbs.
type TopicCmd struct {
	Create topicCreateCmd `cmd:"" help:"Make a topic, and show its access keys."`
	List   topicListCmd   `cmd:"" help:"List the topics."`
	Show   topicShowCmd   `cmd:"" help:"Show a topic."`
	Keys   topicKeysCmd   `cmd:"" help:"Show a topic's access keys, or renew one."`
	Delete topicDeleteCmd `cmd:"" help:"Delete a topic that has no event subscriptions."`

	TestFilter topicTestFilterCmd `cmd:"" help:"Show which events a filter would want that no event subscription has yet, and which clause decided."`
}

type topicCreateCmd struct {
	rest.Flags
	rest.IfMatchFlag
	Topic                string   `arg:"" help:"Name of the topic."`
	Kind                 string   `help:"basic, or namespace." placeholder:"KIND"`
	InputSchema          string   `help:"What is published: EventGridSchema, CloudEventSchemaV1_0 or CustomEventSchema; in any case, and as the Azure CLI writes them." placeholder:"SCHEMA"`
	InputMappingFields   []string `help:"Of CustomEventSchema: where an event's id, topic, eventTime, eventType, subject and dataVersion are, as eventType=kind." placeholder:"NAME=MEMBER"`
	InputMappingDefaults []string `name:"input-mapping-default-values" help:"Of CustomEventSchema: what eventType, subject and dataVersion are where an event does not say." placeholder:"NAME=VALUE"`
	EventRetention       int      `name:"event-retention-in-days" help:"Of a namespace topic: no event is delivered for longer." placeholder:"DAYS"`
	DuplicateWindow      int      `name:"duplicate-detection-window-in-minutes" help:"For so long an event of the same source and id is not stored again." placeholder:"MINUTES"`
}

// Help is shown by topic create --help.
func (topicCreateCmd) Help() string {
	return `Making what exists already with the same settings changes nothing and shows no keys; topic keys shows them.

Examples:
  postrider topic create orders
  postrider topic create orders --input-schema cloudeventschemav1_0 --duplicate-detection-window-in-minutes 1440
  postrider topic create machines --input-schema CustomEventSchema --input-mapping-fields eventType=kind ` +
		`--input-mapping-default-values subject=machines`
}

// Run executes topic create.
func (c *topicCreateCmd) Run(ctx context.Context) error {
	settings, err := c.settings()
	if err != nil {
		return err
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	var topic rest.Object
	if err := client.Call(ctx, http.MethodPut, rest.TopicURL(c.Topic), settings, &topic, c.Headers()...); err != nil {
		return err
	}
	return c.Print(topic, func(w io.Writer) { printTopic(w, topic) })
}

func (c *topicCreateCmd) settings() (rest.Object, error) {
	settings := rest.Object{}
	rest.SetText(settings, "kind", c.Kind)
	rest.SetText(settings, "inputSchema", inputSchemaNamed(c.InputSchema))
	if c.EventRetention != 0 {
		settings["eventRetentionInDays"] = c.EventRetention
	}
	if c.DuplicateWindow != 0 {
		settings["duplicateDetectionWindowInMinutes"] = c.DuplicateWindow
	}
	mapped := rest.Object{}
	for _, flag := range []struct {
		name, member string
		pairs        []string
	}{
		{"--input-mapping-fields", "sourceField", c.InputMappingFields},
		{"--input-mapping-default-values", "defaultValue", c.InputMappingDefaults},
	} {
		for _, pair := range flag.pairs {
			name, value, ok := strings.Cut(pair, "=")
			if !ok || name == "" || value == "" {
				return nil, terminal.Usagef("%s %q: not a pair such as eventType=kind", flag.name, pair)
			}
			field, _ := mapped[name].(rest.Object)
			if field == nil {
				field = rest.Object{}
				mapped[name] = field
			}
			field[flag.member] = value
		}
	}
	if len(mapped) > 0 {
		settings["inputSchemaMapping"] = rest.Object{"inputSchemaMappingType": "Json", "properties": mapped}
	}
	return settings, nil
}

// inputSchemaNamed also takes the Azure CLI's spelling, which is all lower case; what it does not know is for the
// server to judge.
func inputSchemaNamed(given string) string {
	return namedLike(given, "EventGridSchema", "CloudEventSchemaV1_0", "CustomEventSchema")
}

// namedLike is the one of names that differs from given in its case only, or given.
func namedLike(given string, names ...string) string {
	i := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, given) })
	if i < 0 {
		return given
	}
	return names[i]
}

func printTopic(w io.Writer, topic rest.Object) {
	for _, row := range [][2]string{
		{"topic", "name"},
		{"kind", "kind"},
		{"input schema", "inputSchema"},
		{"input schema mapping", "inputSchemaMapping.properties"},
		{"event retention, days", "eventRetentionInDays"},
		{"duplicate detection, minutes", "duplicateDetectionWindowInMinutes"},
		{"publish to", "endpoint"},
		{"created at", "createdAt"},
		{"key1", "key1"},
		{"key2", "key2"},
	} {
		if value := rest.TextAt(topic, row[1]); value != "-" {
			fmt.Fprintf(w, "%s\t%s\n", row[0], value)
		}
	}
}

type topicListCmd struct{ rest.Flags }

// Help is shown by topic list --help.
func (topicListCmd) Help() string { return "Example:\n  postrider topic list -o json" }

var topicColumns = []rest.Column{
	{Title: "TOPIC", Path: "name"},
	{Title: "KIND", Path: "kind"},
	{Title: "INPUT SCHEMA", Path: "inputSchema"},
	{Title: "PUBLISH TO", Path: "endpoint"},
	{Title: "CREATED AT", Path: "createdAt"},
}

// Run executes topic list.
func (c *topicListCmd) Run(ctx context.Context) error { return c.All(ctx, "/v1/topics", topicColumns) }

// oneTopic is a verb about one topic.
type oneTopic struct {
	rest.Flags
	Topic string `arg:"" help:"Name of the topic."`
}

type topicShowCmd struct{ oneTopic }

// Help is shown by topic show --help.
func (topicShowCmd) Help() string { return "Example:\n  postrider topic show orders" }

// Run executes topic show.
func (c *topicShowCmd) Run(ctx context.Context) error {
	return c.Show(ctx, rest.TopicURL(c.Topic), printTopic)
}

type topicKeysCmd struct {
	oneTopic
	Renew string `help:"Replace this one of the two; publishers that use it are refused from then on." enum:",key1,key2" default:"" placeholder:"KEY1|KEY2"`
}

// Help is shown by topic keys --help.
func (topicKeysCmd) Help() string {
	return `Either key publishes. To renew both without an outage: renew the one that nobody uses, move the publishers ` +
		`to it, renew the other.

Examples:
  postrider topic keys orders
  postrider topic keys orders --renew key2`
}

// Run executes topic keys.
func (c *topicKeysCmd) Run(ctx context.Context) error {
	path, body := rest.TopicURL(c.Topic)+"/listKeys", any(nil)
	if c.Renew != "" {
		path, body = rest.TopicURL(c.Topic)+"/regenerateKey", rest.Object{"keyName": c.Renew}
	}
	var keys rest.Object
	if err := c.Call(ctx, http.MethodPost, path, body, &keys); err != nil {
		return err
	}
	return c.Print(keys, func(w io.Writer) {
		fmt.Fprintf(w, "key1\t%s\nkey2\t%s\n", rest.TextAt(keys, "key1"), rest.TextAt(keys, "key2"))
	})
}

type topicDeleteCmd struct {
	oneTopic
	rest.IfMatchFlag
	terminal.ConfirmFlag
}

// Help is shown by topic delete --help.
func (topicDeleteCmd) Help() string {
	return `A topic with event subscriptions is not deleted. Its events stay until their day is dropped.

Examples:
  postrider topic delete orders
  postrider topic delete orders --yes`
}

// Run executes topic delete.
func (c *topicDeleteCmd) Run(ctx context.Context) error {
	if err := c.Confirm(func() (string, error) {
		err := c.Call(ctx, http.MethodGet, rest.TopicURL(c.Topic), nil, nil)
		return fmt.Sprintf("Delete topic %s? Its settings and access keys are lost for good.", c.Topic), err
	}); err != nil {
		return err
	}
	if err := c.Call(ctx, http.MethodDelete, rest.TopicURL(c.Topic), nil, nil, c.Headers()...); err != nil {
		return err
	}
	return c.Done(terminal.Deleted("name", c.Topic), "Topic %s was deleted.", c.Topic)
}
