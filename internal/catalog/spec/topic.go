package spec

import (
	"encoding/base64"
	"fmt"

	"postrider/internal/event"
)

// Sections of a topic's settings.
const (
	topicSection = "Topic"
	Mapping      = "Mapping"
	Limits       = "Limits"
)

// Topic are the settings of a topic.
var Topic = []Setting{
	{
		Name: "kind", Section: topicSection, Label: "Kind", Kind: Choice, Choices: []string{"basic", "namespace"},
		Help: "basic: Event Grid's custom topic. namespace: takes CloudEvents only.", Default: "basic", Fixed: true,
	},
	{
		Name: "inputSchema", Section: topicSection, Label: "Input schema", Kind: Choice,
		Choices: []string{string(event.EventGrid), string(event.CloudEvents), string(event.Custom)},
		Help:    "Schema of published events. CustomEventSchema is your own JSON with an input mapping.",
		Default: "EventGridSchema; CloudEventSchemaV1_0 on a namespace topic", Fixed: true,
	},
	{
		Name: "relay", Section: topicSection, Label: "Relay", Kind: Choice, Choices: []string{"none", "azure"},
		Help: "azure: event subscriptions of Azure Event Grid may deliver into the topic.", Default: "none",
	},
	{
		Name: "inputSchemaMapping", Section: Mapping, Label: "Input mapping", Kind: JSON, Flag: "-",
		Help:    "Of CustomEventSchema: which members of your JSON are the event's id, type, subject and time.",
		Default: "none", Fixed: true,
	},
	{
		Name: "duplicateDetectionWindowInMinutes", Section: Limits, Label: "Duplicate window (min)", Kind: Whole, Min: 1,
		Max: 10080, Default: "every event is stored; 1440 on a relay topic", Example: "1440",
		Help: "Minutes in which an event with the same source and id is not stored again. 1440 is a day.",
	},
	{
		Name: "eventRetentionInDays", Section: Limits, Label: "Retention (days)", Kind: Whole, Min: 1, Max: 7,
		Help: "Of a namespace topic: no event is delivered for longer.", Default: "7",
	},
}

// What a chosen access key must have at least, in bytes; postrider's own have 32. Keys of other emulators are shorter
// and published: they are for postrider dev.
const (
	KeyBytes    = 32
	DevKeyBytes = 16
)

// KeyProblem is why text cannot be a topic's access key; "" for a valid one. The text is not in it.
func KeyProblem(text string, least int) string {
	if raw, err := base64.StdEncoding.DecodeString(text); err != nil || len(raw) < least {
		return fmt.Sprintf("must be the base64 of %d bytes or more, with A-Z a-z 0-9 + / and = at the end: openssl rand "+
			"-base64 32 creates one", least)
	}
	return ""
}
