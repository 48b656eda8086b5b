package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

type topicCmd struct {
	Create topicCreateCmd `cmd:"" help:"Make a topic, and show its access keys."`
	List   topicListCmd   `cmd:"" help:"List the topics."`
	Show   topicShowCmd   `cmd:"" help:"Show a topic."`
	Keys   topicKeysCmd   `cmd:"" help:"Show a topic's access keys, or renew one."`
	Delete topicDeleteCmd `cmd:"" help:"Delete a topic that has no event subscriptions."`

	TestFilter topicTestFilterCmd `cmd:"" help:"Show which events a filter would want that no event subscription has yet, and which clause decided."`
}

type topicCreateCmd struct {
	restFlags
	ifMatchFlag
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
  postrider topic create machines --input-schema CustomEventSchema --input-mapping-fields eventType=kind --input-mapping-default-values subject=machines`
}

// Run executes topic create.
func (c *topicCreateCmd) Run(ctx context.Context) error {
	settings, err := c.settings()
	if err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	var topic object
	if err := client.call(ctx, http.MethodPut, topicURL(c.Topic), settings, &topic, c.headers()...); err != nil {
		return err
	}
	return c.print(topic, func(w io.Writer) { printTopic(w, topic) })
}

func (c *topicCreateCmd) settings() (object, error) {
	settings := object{}
	setText(settings, "kind", c.Kind)
	setText(settings, "inputSchema", inputSchemaNamed(c.InputSchema))
	if c.EventRetention != 0 {
		settings["eventRetentionInDays"] = c.EventRetention
	}
	if c.DuplicateWindow != 0 {
		settings["duplicateDetectionWindowInMinutes"] = c.DuplicateWindow
	}
	mapped := object{}
	for _, flag := range []struct {
		name, member string
		pairs        []string
	}{{"--input-mapping-fields", "sourceField", c.InputMappingFields}, {"--input-mapping-default-values", "defaultValue", c.InputMappingDefaults}} {
		for _, pair := range flag.pairs {
			name, value, ok := strings.Cut(pair, "=")
			if !ok || name == "" || value == "" {
				return nil, usagef("%s %q: not a pair such as eventType=kind", flag.name, pair)
			}
			field, _ := mapped[name].(object)
			if field == nil {
				field = object{}
				mapped[name] = field
			}
			field[flag.member] = value
		}
	}
	if len(mapped) > 0 {
		settings["inputSchemaMapping"] = object{"inputSchemaMappingType": "Json", "properties": mapped}
	}
	return settings, nil
}

func setText(settings object, name, value string) {
	if value != "" {
		settings[name] = value
	}
}

// inputSchemaNamed also takes the Azure CLI's spelling, which is all lower case; what it does not know is for the server to judge.
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

func printTopic(w io.Writer, topic object) {
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
		if value := textAt(topic, row[1]); value != "-" {
			fmt.Fprintf(w, "%s\t%s\n", row[0], value)
		}
	}
}

type topicListCmd struct{ restFlags }

// Help is shown by topic list --help.
func (topicListCmd) Help() string { return "Example:\n  postrider topic list -o json" }

var topicColumns = []column{
	{title: "TOPIC", path: "name"},
	{title: "KIND", path: "kind"},
	{title: "INPUT SCHEMA", path: "inputSchema"},
	{title: "PUBLISH TO", path: "endpoint"},
	{title: "CREATED AT", path: "createdAt"},
}

// Run executes topic list.
func (c *topicListCmd) Run(ctx context.Context) error { return c.all(ctx, "/v1/topics", topicColumns) }

// oneTopic is a verb about one topic.
type oneTopic struct {
	restFlags
	Topic string `arg:"" help:"Name of the topic."`
}

type topicShowCmd struct{ oneTopic }

// Help is shown by topic show --help.
func (topicShowCmd) Help() string { return "Example:\n  postrider topic show orders" }

// Run executes topic show.
func (c *topicShowCmd) Run(ctx context.Context) error {
	return c.show(ctx, topicURL(c.Topic), printTopic)
}

type topicKeysCmd struct {
	oneTopic
	Renew string `help:"Replace this one of the two; publishers that use it are refused from then on." enum:",key1,key2" default:"" placeholder:"KEY1|KEY2"`
}

// Help is shown by topic keys --help.
func (topicKeysCmd) Help() string {
	return `Either key publishes. To renew both without an outage: renew the one that nobody uses, move the publishers to it, renew the other.

Examples:
  postrider topic keys orders
  postrider topic keys orders --renew key2`
}

// Run executes topic keys.
func (c *topicKeysCmd) Run(ctx context.Context) error {
	path, body := topicURL(c.Topic)+"/listKeys", any(nil)
	if c.Renew != "" {
		path, body = topicURL(c.Topic)+"/regenerateKey", object{"keyName": c.Renew}
	}
	var keys object
	if err := c.call(ctx, http.MethodPost, path, body, &keys); err != nil {
		return err
	}
	return c.print(keys, func(w io.Writer) {
		fmt.Fprintf(w, "key1\t%s\nkey2\t%s\n", textAt(keys, "key1"), textAt(keys, "key2"))
	})
}

type topicDeleteCmd struct {
	oneTopic
	ifMatchFlag
	confirmFlag
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
	if err := c.confirm(func() (string, error) {
		err := c.call(ctx, http.MethodGet, topicURL(c.Topic), nil, nil)
		return fmt.Sprintf("Delete topic %s? Its settings and access keys are lost for good.", c.Topic), err
	}); err != nil {
		return err
	}
	if err := c.call(ctx, http.MethodDelete, topicURL(c.Topic), nil, nil, c.headers()...); err != nil {
		return err
	}
	return c.did(gone("name", c.Topic), "Topic %s was deleted.", c.Topic)
}
