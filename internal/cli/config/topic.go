package config

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"postrider/internal/catalog/spec"
	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
	v1 "postrider/server/v1"
)

// TopicCmd is topic with its verbs.
type TopicCmd struct {
	Create topicCreateCmd         `cmd:"" help:"Create a topic, and show its access keys."`
	List   rest.AllVerb[v1.Topic] `cmd:"" help:"List the topics." example:"topic list -o json"`
	Show   topicShowCmd           `cmd:"" help:"Show a topic." example:"topic show orders"`
	Keys   topicKeysCmd           `cmd:"" help:"Show a topic's access keys, or renew one." detail:"Publishers can use either key. To renew both without an outage: renew the key that is not in use, switch the publishers to it, renew the other key." example:"topic keys orders; topic keys orders --renew key2"`
	Export topicExportCmd         `cmd:"" help:"Write a topic with its keys and event subscriptions as a file for apply."`
	Delete topicDeleteCmd         `cmd:"" help:"Delete a topic that has no event subscriptions." detail:"A topic with event subscriptions is not deleted. Its events stay until the end of their retention." example:"topic delete orders; topic delete orders --yes"`

	TestFilter topicTestFilterCmd `cmd:"" help:"Show which events of a topic a new filter would match, and which clause decided." detail:"Nothing is stored or delivered. subscription test-filter tests the filter of an event subscription." example:"topic test-filter orders --filter filter.json; topic test-filter orders --filter filter.json --event order.json -o json"`
}

// NewTopicCmd returns the verbs with flags for all settings.
func NewTopicCmd() (c TopicCmd) {
	c.Create.TableFlags = NewTableFlags(spec.Topic, "")
	return c
}

// oneTopic has the flags of verbs about one topic.
type oneTopic struct {
	rest.Flags
	Topic string `arg:"" predictor:"topic" help:"Name of the topic."`
}

type topicCreateCmd struct {
	oneTopic
	rest.IfMatchFlag
	TableFlags
	InputMappingFields   []string `help:"Of CustomEventSchema: members with an event's id, topic, eventTime, eventType, subject and dataVersion, such as eventType=kind. A dot leads into an object." placeholder:"NAME=MEMBER"`
	InputMappingDefaults []string `name:"input-mapping-default-values" help:"Of CustomEventSchema: eventType, subject and dataVersion of events that have none." placeholder:"NAME=VALUE"`
}

// Help is shown by topic create --help.
func (topicCreateCmd) Help() string {
	return `Creating a topic that exists with the same settings changes nothing and shows no keys; topic keys shows them.

Examples:
  postrider topic create orders
  postrider topic create orders --input-schema cloudeventschemav1_0 --duplicate-detection-window-in-minutes 1440
  postrider topic create machines --input-schema CustomEventSchema --input-mapping-fields eventType=kind \
    --input-mapping-default-values subject=machines`
}

func (c *topicCreateCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	settings, err := c.Settings(std.In)
	if err != nil {
		return err
	}
	if err := addMapping(settings, "--input-mapping-fields", "sourceField", c.InputMappingFields); err != nil {
		return err
	}
	if err := addMapping(settings, "--input-mapping-default-values", "defaultValue", c.InputMappingDefaults); err != nil {
		return err
	}
	return c.Do(ctx, std, client, http.MethodPut, rest.TopicURL(c.Topic), settings, printTopic, c.Headers()...)
}

// addMapping adds pairs of a property and its member or default value to the input mapping.
func addMapping(settings rest.Object, flag, member string, pairs []string) error {
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		if name == "" || value == "" || strings.Contains(name, ".") {
			return terminal.Usagef("%s %q: must be a pair such as eventType=kind", flag, pair)
		}
		setAt(settings, "inputSchemaMapping.inputSchemaMappingType", "Json")
		setAt(settings, "inputSchemaMapping.properties."+name+"."+member, value)
	}
	return nil
}

func printTopic(w io.Writer, topic rest.Object) {
	rest.PrintLines(w, topic, "topic name")
	printSettings(w, spec.Topic, topic)
	rest.PrintLines(w, topic, "publish to endpoint", "created at createdAt", "key1 key1", "key2 key2")
}

type topicShowCmd struct{ oneTopic }

func (c *topicShowCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	return c.Do(ctx, std, client, http.MethodGet, rest.TopicURL(c.Topic), nil, printTopic)
}

type topicKeysCmd struct {
	oneTopic
	Renew string `help:"Replace this key; publishers that still use it are rejected." enum:",key1,key2" default:"" placeholder:"KEY1|KEY2"`
}

func (c *topicKeysCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	path, body := rest.TopicURL(c.Topic)+"/listKeys", any(nil)
	if c.Renew != "" {
		path, body = rest.TopicURL(c.Topic)+"/regenerateKey", rest.Object{"keyName": c.Renew}
	}
	return c.Do(ctx, std, client, http.MethodPost, path, body, func(w io.Writer, keys rest.Object) {
		rest.PrintLines(w, keys, "key1 key1", "key2 key2")
	})
}

type topicDeleteCmd struct {
	oneTopic
	deleteFlags
}

func (c *topicDeleteCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	return c.delete(ctx, std, client, c.Flags, rest.TopicURL(c.Topic), func() (string, error) {
		return fmt.Sprintf("Delete topic %s? Its settings and access keys are lost for good.", c.Topic), nil
	}, "Topic "+c.Topic+" was deleted.", rest.Object{"name": c.Topic})
}
