package openapi

import (
	"reflect"

	"go.yaml.in/yaml/v3"

	"postrider/catalog/spec"
)

// settingsOf are the tables that describe the members of a schema, and the path of the schema in them.
var settingsOf = map[string]struct {
	table   []spec.Setting
	path    string
	request bool // requests have it
}{
	"TopicSettings": {spec.Topic, "", true}, "Topic": {spec.Topic, "", false},
	"SubscriptionSettings": {spec.Subscription, "", true}, "Subscription": {spec.Subscription, "", false},
	"RetryPolicySettings": {spec.Subscription, "retryPolicy.", true},
	"Filter":              {spec.Subscription, "filter.", true}, "FilterView": {spec.Subscription, "filter.", false},
	"OAuth2": {spec.Subscription, "oauth2.", true}, "OAuth2View": {spec.Subscription, "oauth2.", false},
	"ClientCertificate":     {spec.Subscription, "clientCertificate.", true},
	"DeadLetterDestination": {spec.Subscription, "deadLetterDestination.", true},
	"DeadLetterProperties":  {spec.Subscription, "deadLetterDestination.properties.", true},
	"SigningSettings":       {spec.Subscription, "signing.", true}, "Signing": {spec.Subscription, "signing.", false},
	"Policy": {spec.Policy, "", true}, "Probation": {spec.Policy, "probation.", true},
}

// requestTag adds to a field's tag whether requests need the member: settings without a default do, and the others may
// be null as well.
func requestTag(schema, member string, tag reflect.StructTag) reflect.StructTag {
	of := settingsOf[schema]
	s := spec.Find(of.table, of.path+member)
	switch {
	case !of.request:
		return tag
	case s != nil && s.Default == "":
		return `required:"true" ` + tag
	default:
		return `required:"false" nullable:"true" ` + tag
	}
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
