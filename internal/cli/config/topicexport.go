package config

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"postrider/internal/catalog/spec"
	"postrider/internal/cli/rest"
	"postrider/internal/destination"
	"postrider/internal/terminal"
)

type topicExportCmd struct {
	rest.ServerFlags
	Topic string `arg:"" predictor:"topic" help:"Name of the topic."`
}

// Help is shown by topic export --help.
func (topicExportCmd) Help() string {
	return `The file has the topic with its access keys, its event subscriptions and the retry policies of your own that
they use. apply creates them elsewhere. It contains secrets: the access keys, the whole endpoint URLs, headers, and the
newest signing secrets. Those that postrider never shows again are listed: add them to the file. Pauses and events are
not exported. Requires an administrator's key; the audit records it.

Examples:
  postrider topic export orders > orders.json
  postrider topic export orders | POSTRIDER_URL=https://events-2.example.com postrider apply -f - --yes`
}

// Run executes topic export.
func (c *topicExportCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	var topic, keys rest.Object
	if err := client.Call(ctx, http.MethodGet, rest.TopicURL(c.Topic), nil, &topic); err != nil {
		return err
	}
	if err := client.Call(ctx, http.MethodPost, rest.TopicURL(c.Topic)+"/listKeys", nil, &keys); err != nil {
		return err
	}
	subs, err := subscriptionsOf(ctx, client, c.Topic)
	if err != nil {
		return err
	}
	exported, policies := make([]rest.Object, len(subs)), []rest.Object{}
	for i, s := range subs {
		if exported[i], err = exportedSubscription(ctx, client, c.Topic, s); err != nil {
			return err
		}
		for _, name := range unshown(s) {
			fmt.Fprintf(std.Err, "not exported: event subscription %s: %s\n", terminal.OneLine(textOf(s["name"])), name)
		}
		policies, err = withPolicy(ctx, client, policies, rest.TextAt(s, "retryPolicy.policy"))
		if err != nil {
			return err
		}
	}
	file := exportedSettings(spec.Topic, topic)
	file["name"], file["key1"], file["key2"], file["subscriptions"] = topic["name"], keys["key1"], keys["key2"], exported
	return terminal.OutputFlag{Output: "json"}.Print(std.Out,
		rest.Object{"policies": policies, "topics": []rest.Object{file}}, nil)
}

// exportedSettings are the settings of an object that have a value, without secrets.
func exportedSettings(table []spec.Setting, o rest.Object) rest.Object {
	settings := rest.Object{}
	for i := range table {
		s := &table[i]
		value := rest.PresentAt(o, s.Name)
		if s.Section != "" && !s.Secret && value != nil { // without a section, it is another name of a setting
			setAt(settings, s.Name, value)
		}
	}
	return settings
}

// exportedSubscription are the settings of an event subscription with all secrets that can be shown.
func exportedSubscription(ctx context.Context, c *rest.Client, topic string, s rest.Object) (rest.Object, error) {
	name, kind := textOf(s["name"]), typeOf(s)
	settings := exportedSettings(slices.DeleteFunc(slices.Clone(spec.Subscription), func(one spec.Setting) bool {
		return pulled(s) && spec.OfRequests(&one) || one.Of != nil && !slices.Contains(one.Of, destination.Type(kind))
	}), s)
	settings["name"] = name
	if pulled(s) {
		return settings, nil
	}
	reveal := func(action string) (rest.Object, error) {
		var shown rest.Object
		err := c.Call(ctx, http.MethodPost, rest.SubscriptionURL(topic, name)+"/"+action, nil, &shown)
		return shown, err
	}
	endpoint, err := reveal("getFullUrl")
	if err != nil {
		return nil, err
	}
	rest.SetText(settings, "endpointUrl", textOf(endpoint["endpointUrl"]))
	headers, err := reveal("getDeliveryAttributes")
	if err != nil {
		return nil, err
	}
	if list := rest.Objects(headers, "value"); len(list) > 0 {
		settings["deliveryAttributeMappings"] = list
	}
	if rest.ValueAt(s, "signing.enabled") != true {
		return settings, nil
	}
	secrets, err := reveal("getSigningSecrets")
	if list := rest.Objects(secrets, "value"); len(list) > 0 {
		setAt(settings, "signing.secret", list[0]["secret"])
	}
	return settings, err
}

// unshown are the secrets of an event subscription that postrider never shows.
func unshown(s rest.Object) []string {
	var names []string
	for _, of := range []struct{ setting, secret string }{
		{"destination", "keys of its destination"},
		{"clientCertificate", "clientCertificate.privateKey"},
		{"oauth2", "oauth2.clientSecret"},
	} {
		if rest.PresentAt(s, of.setting) != nil {
			names = append(names, of.secret)
		}
	}
	if s["messageFormat"] == "PagerDuty" {
		names = append(names, "pagerDutyRoutingKey")
	}
	return names
}

// withPolicy adds a retry policy to those of a file, unless it is built in or among them.
func withPolicy(ctx context.Context, c *rest.Client, policies []rest.Object, name string) ([]rest.Object, error) {
	if slices.ContainsFunc(policies, func(p rest.Object) bool { return p["name"] == name }) {
		return policies, nil
	}
	var found rest.Object
	err := c.Call(ctx, http.MethodGet, rest.ItemURL("/v1/policies", name), nil, &found)
	if err != nil || found["builtIn"] == true {
		return policies, err
	}
	exported := exportedSettings(spec.Policy, found)
	exported["name"] = found["name"]
	return append(policies, exported), nil
}
