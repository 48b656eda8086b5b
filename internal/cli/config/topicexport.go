package config

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"postrider/internal/catalog/spec"
	"postrider/internal/cli/rest"
	"postrider/internal/destination"
	"postrider/internal/terminal"
	"postrider/server/api"
)

type topicExportCmd struct {
	rest.ServerFlags
	Topic string `arg:"" predictor:"topic" help:"Name of the topic."`
}

// Help is shown by topic export --help.
func (topicExportCmd) Help() string {
	return `The file has the topic with its access keys, its event subscriptions and the retry policies of your own that
they use. apply creates them elsewhere. Settings that equal their default under the retry policy and the behavior are
left out: later changes of these apply to them. Pauses and events are not exported, nor is topic postrider.system:
every service has its own.

The file contains secrets: the access keys, the whole endpoint URLs, headers, and of each event subscription the newest
signing secret only. Those that postrider never shows again are listed: add them to the file. Requires an
administrator's key; the audit records it.

Examples:
  (umask 077; postrider topic export orders > orders.json)`
}

// Run executes topic export.
func (c *topicExportCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	var topic, keys rest.Object
	if err := client.Call(ctx, http.MethodGet, rest.TopicURL(c.Topic), nil, &topic); err != nil {
		return err
	}
	if err := client.Call(ctx, http.MethodPost, rest.TopicURL(c.Topic)+"/listKeys", nil, &keys); err != nil {
		if rest.IsConflict(err, api.ConflictCodeSystemTopic) {
			return fmt.Errorf("topic %s is not exported: every service has its own", c.Topic)
		}
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
		for _, secret := range unshown(s) {
			fmt.Fprintf(std.Err, "not exported: event subscription %s: %s: add it to the file\n",
				terminal.OneLine(textOf(s["name"])), secret)
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

// statedSettings are the settings of an event subscription that have another value than their default.
func statedSettings(ctx context.Context, c *rest.Client, topic string, s rest.Object) (rest.Object, error) {
	table := slices.DeleteFunc(slices.Clone(spec.Subscription), func(one spec.Setting) bool {
		return pulled(s) && spec.OfRequests(&one) ||
			one.Of != nil && !slices.Contains(one.Of, destination.Type(typeOf(s)))
	})
	// The settings that defaults depend on, and those that a destination requires.
	decisive := exportedSettings(slices.DeleteFunc(slices.Clone(table), func(one spec.Setting) bool {
		return one.Section != spec.Destination && !slices.Contains([]string{
			"deliveryConfiguration.deliveryMode", "eventDeliverySchema", "retryPolicy.policy", "behavior",
		}, one.Name)
	}), s)
	switch {
	case decisive["destination"] != nil:
		decisive["oauth2"] = s["oauth2"]
	case !pulled(s): // one is required; rules for addresses may have changed since the stored one was accepted
		decisive["endpointUrl"] = "https://example.com/"
	}
	path := rest.QueryURL(rest.SubscriptionURL(topic, textOf(s["name"])), rest.Object{"dryRun": true})
	var defaults rest.Object
	if err := c.Call(ctx, http.MethodPut, path, decisive, &defaults); err != nil {
		return nil, fmt.Errorf("read the defaults of event subscription %s: %w", textOf(s["name"]), err)
	}
	const events, kilobytes = "maxEventsPerBatch", "preferredBatchSizeInKilobytes"
	differs := func(name string) bool {
		return !reflect.DeepEqual(rest.PresentAt(s, name), rest.PresentAt(defaults, name))
	}
	return exportedSettings(slices.DeleteFunc(table, func(one spec.Setting) bool {
		if one.Name == events || one.Name == kilobytes { // the default of each depends on the other
			return !differs(events) && !differs(kilobytes)
		}
		return rest.PresentAt(decisive, one.Name) == nil && !differs(one.Name)
	}), s), nil
}

// exportedSubscription are the stated settings of an event subscription with all secrets that can be shown.
func exportedSubscription(ctx context.Context, c *rest.Client, topic string, s rest.Object) (rest.Object, error) {
	name := textOf(s["name"])
	settings, err := statedSettings(ctx, c, topic, s)
	if err != nil {
		return nil, err
	}
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

// unshown are the secrets that postrider never shows: those that an event subscription has, and those that it may have.
func unshown(s rest.Object) []string {
	var found []string
	kind := destination.Type(typeOf(s))
	for i := range spec.Subscription {
		one := &spec.Subscription[i]
		object, _, _ := strings.Cut(one.Name, ".")
		property, ofDestination := strings.CutPrefix(one.Name, "destination.properties.")
		may, sure := false, (object == "clientCertificate" || object == "oauth2") && rest.PresentAt(s, object) != nil
		if ofDestination {
			may, sure = hasKey(s, kind, property)
		}
		switch {
		case !one.Secret || one.Of != nil && !slices.Contains(one.Of, kind):
		case sure:
			found = append(found, one.Name)
		case may:
			found = append(found, one.Name+", if it is set")
		}
	}
	return found
}

// hasKey reports whether a destination may have a secret, and whether it is sure to have it.
func hasKey(s rest.Object, kind destination.Type, property string) (may, sure bool) {
	of := func(name string) bool { return rest.PresentAt(s, "destination.properties."+name) != nil }
	keyed := s["oauth2"] == nil || kind == destination.HybridConnection // its listener may use a token
	switch property {
	case "primaryKey", "secondaryKey":
		return keyed && (of("sharedAccessKeyName") || kind == destination.StorageQueue), false
	case "sharedAccessSignature":
		return keyed, false
	case "password": // alone, it is a token of NATS
		return kind == destination.NatsJetStream, of("username")
	case "credentials":
		return !of("username"), false
	}
	return false, false // a connection string is stored as other settings
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
