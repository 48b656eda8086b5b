package management

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// azureList are the event subscriptions of what `az eventgrid event-subscription list` or show prints, or of an answer
// of Azure's own API.
func azureList(value any) ([]rest.Object, bool) {
	if o, ok := value.(rest.Object); ok {
		if isAzure(o) {
			return []rest.Object{o}, true
		}
		value = o["value"]
	}
	list, ok := value.([]any)
	if !ok || len(list) == 0 {
		return nil, false
	}
	found := make([]rest.Object, len(list))
	for i, entry := range list {
		if found[i], ok = entry.(rest.Object); !ok || !isAzure(found[i]) {
			return nil, false
		}
	}
	return found, true
}

func isAzure(o rest.Object) bool {
	kind, _ := o["type"].(string)
	_, nested := o["properties"].(rest.Object)
	_, flat := o["destination"]
	return strings.Contains(strings.ToLower(kind), "microsoft.eventgrid/") &&
		strings.HasSuffix(strings.ToLower(kind), "eventsubscriptions") && (nested || flat)
}

// flattened has the members of `properties` beside the others, as the CLI prints them.
func flattened(o rest.Object) rest.Object {
	inner, ok := o["properties"].(rest.Object)
	if !ok {
		return o
	}
	flat := without(o, "properties")
	for name, value := range inner {
		flat[name] = value
	}
	return flat
}

// azureReader maps one event subscription and notes what there is not here.
type azureReader struct {
	title string
	notes []string
}

func (a *azureReader) note(format string, args ...any) {
	a.notes = append(a.notes, a.title+": "+fmt.Sprintf(format, args...))
}

// fromAzure adds what can be had here. The topics are made where there are none, for what is delivered as CloudEvents
// and nothing else, of those.
func (f *applyFile) fromAzure(list []rest.Object, topic string) error {
	others := map[string]bool{} // topics with event subscriptions that get another schema than CloudEvents
	for _, o := range list {
		name, _ := o["name"].(string)
		a := &azureReader{title: "event subscription " + terminal.Cell(name)}
		w, ok := a.subscription(flattened(o), name, topic)
		f.notOffered = append(f.notOffered, a.notes...)
		if !ok {
			continue
		}
		if err := f.add(w); err != nil {
			return err
		}
		others[w.topic] = others[w.topic] || w.settings["eventDeliverySchema"] != "CloudEventSchemaV1_0"
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		settings := rest.Object{"inputSchema": "CloudEventSchemaV1_0"}
		if others[name] {
			settings = rest.Object{}
		}
		if err := f.add(wanted{kind: kindTopic, name: name, settings: settings, ifMissing: true}); err != nil {
			return err
		}
	}
	return nil
}

func (a *azureReader) subscription(o rest.Object, name, topic string) (wanted, bool) {
	w := wanted{kind: kindSubscription, topic: topic, name: name, settings: rest.Object{}}
	if w.topic == "" {
		source, _ := o["topic"].(string)
		if w.topic = azureTopic(source); w.topic == "" {
			a.note("events of %s do not come here by themselves: left out; --topic names the topic that they shall be "+
				"published to", terminal.Cell(source))
			return w, false
		}
	}
	if o["deliveryConfiguration"] != nil {
		a.note("the deliveryConfiguration of a namespace is not read: left out; make it with subscription create")
		return w, false
	}
	destination, _ := o["destination"].(rest.Object)
	if identity, ok := o["deliveryWithResourceIdentity"].(rest.Object); ok {
		a.note("deliveryWithResourceIdentity is not offered: deliveries carry no token of Azure's")
		destination, _ = identity["destination"].(rest.Object)
	}
	if !a.destination(w.settings, flattened(destination)) {
		return w, false
	}
	for _, member := range []string{"eventDeliverySchema", "expirationTimeUtc", "labels"} {
		if value := o[member]; value != nil {
			w.settings[member] = value
		}
	}
	if filter, ok := o["filter"].(rest.Object); ok {
		setObject(w.settings, "filter", present(filter, "includedEventTypes", "subjectBeginsWith", "subjectEndsWith",
			"isSubjectCaseSensitive", "advancedFilters", "enableAdvancedFilteringOnArrays"))
	}
	if retry, ok := o["retryPolicy"].(rest.Object); ok {
		setObject(w.settings, "retryPolicy", present(retry, "maxDeliveryAttempts", "eventTimeToLiveInMinutes"))
	}
	a.deadLetters(w.settings, o)
	return w, true
}

// azureTopic is the name of a custom topic, a domain's or a namespace's; "" of what Azure itself publishes, such as a
// storage account.
func azureTopic(id string) string {
	parts := strings.Split(strings.Trim(id, "/"), "/")
	if len(parts) < 2 || !strings.Contains(strings.ToLower(id), "/microsoft.eventgrid/") ||
		!strings.EqualFold(parts[len(parts)-2], "topics") {
		return ""
	}
	return parts[len(parts)-1]
}

// present are the named members that have a value.
func present(o rest.Object, names ...string) rest.Object {
	found := rest.Object{}
	for _, name := range names {
		if o[name] != nil {
			found[name] = o[name]
		}
	}
	return found
}

func (a *azureReader) destination(settings, d rest.Object) bool {
	if kind, _ := d["endpointType"].(string); kind != "WebHook" {
		a.note("endpointType %s is not offered: left out; postrider delivers to WebHook", terminal.Cell(d["endpointType"]))
		return false
	}
	full, _ := d["endpointUrl"].(string)
	if base, _ := d["endpointBaseUrl"].(string); full == "" {
		full = base
		a.note("the list has no endpointUrl, so its query string, if it has one, is missing: list with " +
			"--include-full-endpoint-url true")
	}
	if full == "" {
		a.note("it has no endpoint: left out")
		return false
	}
	settings["endpointUrl"] = full
	for _, member := range []string{"maxEventsPerBatch", "preferredBatchSizeInKilobytes"} {
		if d[member] != nil {
			settings[member] = d[member]
		}
	}
	for _, member := range []string{
		"azureActiveDirectoryTenantId", "azureActiveDirectoryApplicationIdOrUri", "minimumTlsVersionAllowed",
	} {
		if d[member] != nil {
			a.note("%s is not offered: deliveries go without", member)
		}
	}
	mappings, _ := d["deliveryAttributeMappings"].([]any)
	var headers []rest.Object
	for _, entry := range mappings {
		if m, ok := entry.(rest.Object); ok {
			headers = a.header(headers, flattened(m))
		}
	}
	if headers != nil {
		settings["deliveryAttributeMappings"] = headers
	}
	return true
}

// header adds a custom header. The value of a secret one is in no list.
func (a *azureReader) header(headers []rest.Object, m rest.Object) []rest.Object {
	mapped := rest.Object{"name": m["name"], "type": m["type"]}
	if m["type"] == "Dynamic" {
		mapped["properties"] = present(m, "sourceField")
		return append(headers, mapped)
	}
	if m["isSecret"] == true && (m["value"] == nil || m["value"] == "Hidden") {
		a.note("the value of secret header %s is not in the list: left out; set it afterwards", terminal.Cell(m["name"]))
		return headers
	}
	mapped["properties"] = present(m, "value", "isSecret")
	return append(headers, mapped)
}

func (a *azureReader) deadLetters(settings, o rest.Object) {
	destination, _ := o["deadLetterDestination"].(rest.Object)
	if identity, ok := o["deadLetterWithResourceIdentity"].(rest.Object); ok {
		a.note("deadLetterWithResourceIdentity is not offered: dead letters are written with what serve " +
			"--dead-letter-container says")
		destination, _ = identity["deadLetterDestination"].(rest.Object)
	}
	if destination != nil {
		flat := flattened(destination)
		settings["deadLetterDestination"] = rest.Object{
			"endpointType": flat["endpointType"], "properties": present(flat, "resourceId", "blobContainerName"),
		}
	}
}
