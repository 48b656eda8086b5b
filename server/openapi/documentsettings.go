package openapi

import (
	"go.yaml.in/yaml/v3"

	"postrider/catalog/spec"
)

// settingsOf are the tables that describe the members of a schema, and the path of the schema in them.
var settingsOf = map[string]struct {
	table []spec.Setting
	path  string
}{
	"TopicSettings": {spec.Topic, ""}, "Topic": {spec.Topic, ""},
	"SubscriptionSettings": {spec.Subscription, ""}, "Subscription": {spec.Subscription, ""},
	"RetryPolicySettings": {spec.Subscription, "retryPolicy."},
	"Filter":              {spec.Subscription, "filter."}, "FilterView": {spec.Subscription, "filter."},
	"OAuth2": {spec.Subscription, "oauth2."}, "OAuth2View": {spec.Subscription, "oauth2."},
	"ClientCertificate":     {spec.Subscription, "clientCertificate."},
	"DeadLetterDestination": {spec.Subscription, "deadLetterDestination."},
	"DeadLetterProperties":  {spec.Subscription, "deadLetterDestination.properties."},
	"SigningSettings":       {spec.Subscription, "signing."}, "Signing": {spec.Subscription, "signing."},
	"Policy": {spec.Policy, ""}, "Probation": {spec.Policy, "probation."},
}

// setting adds to a property what the table of settings says of it, and reports whether it is in the table.
func setting(schema, member string, property *yaml.Node) bool {
	of := settingsOf[schema]
	s := spec.Find(of.table, of.path+member)
	if s == nil {
		return false
	}
	help := s.Help
	if s.Default != "" {
		help += " Default: " + s.Default + "."
	}
	set(property, "description", node(help))
	if s.Choices != nil {
		choices := s.Choices
		if nullable := find(property, "nullable"); nullable != nil {
			set(property, "enum", node(append(anyOf(choices), nil)))
		} else {
			set(property, "enum", node(choices))
		}
	}
	if s.Kind == spec.Whole || s.Kind == spec.Number {
		set(property, "minimum", node(s.Min))
		if s.Max > 0 {
			set(property, "maximum", node(s.Max))
		}
	}
	return true
}

func anyOf(choices []string) []any {
	list := make([]any, len(choices))
	for i, choice := range choices {
		list[i] = choice
	}
	return list
}
