package display

import (
	"encoding/json"

	"postrider/internal/catalog"
	"postrider/internal/catalog/spec"
	"postrider/web/form"
)

// Target is where an event subscription delivers to. Kind is the type in words; "" for a URL, or if consumers receive
// the events.
type Target struct{ Kind, URL string }

// TargetOf is the target of an event subscription.
func TargetOf(sub *catalog.Subscription) Target {
	if sub.Destination.IsWebHook() {
		return Target{URL: sub.EndpointBaseURL}
	}
	return Target{Kind: sub.Destination.Type().Words(), URL: sub.EndpointBaseURL}
}

// DestinationFacts are the properties of a destination that are set, without secrets.
func DestinationFacts(sub *catalog.Subscription) (facts []Fact) {
	text, err := json.Marshal(map[string]any{"destination": sub.Destination})
	for i := range spec.Subscription {
		s := &spec.Subscription[i]
		switch value := spec.At(text, s.Name); {
		case err != nil || value == nil || s.Section != spec.Destination || s.Of == nil:
		case s.Secret:
			facts = append(facts, Fact{Label: s.Label, Text: "stored"})
		default:
			facts = append(facts, Fact{Label: s.Label, Text: form.TextOf(s, value)})
		}
	}
	return facts
}
