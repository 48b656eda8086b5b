package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"postrider/internal/catalog/spec"
	"postrider/internal/cli/rest"
	"postrider/internal/destination"
	"postrider/internal/endpointconf"
	"postrider/internal/terminal"
)

// azureList returns the event subscriptions that `az eventgrid event-subscription list` or show prints, or that Azure's
// API returns.
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

// flattened moves the members of `properties` one level up, as the Azure CLI prints them.
func flattened(value any) rest.Object {
	o, _ := value.(rest.Object)
	flat := maps.Clone(o)
	delete(flat, "properties")
	if inner, ok := o["properties"].(rest.Object); ok {
		maps.Copy(flat, inner)
	}
	return flat
}

// azureReader converts one event subscription and notes what postrider does not support.
type azureReader struct {
	file *applyFile
	name string // as flags have it
}

func (a *azureReader) note(format string, args ...any) {
	a.file.note("event subscription "+a.name, format, args...)
}

// fromAzure adds the event subscriptions of a list and their topics, unless the file declares these. A new topic has
// the CloudEvents schema if all of its event subscriptions receive CloudEvents.
func (f *applyFile) fromAzure(list []rest.Object) {
	f.azure = true
	topics := map[string]rest.Object{}
	for _, o := range rest.Objects(f.objects, "topics") {
		topics[textOf(o["name"])] = o
	}
	for _, o := range list {
		a := &azureReader{f, terminal.Cell(o["name"])}
		settings := a.subscription(flattened(o))
		if settings == nil {
			continue
		}
		f.add("subscriptions", settings)
		name := textOf(settings["topic"])
		t := topics[name]
		if t == nil {
			t = rest.Object{"name": name, "createOnly": true, "inputSchema": "CloudEventSchemaV1_0"}
			topics[name] = t
			f.add("topics", t)
		}
		switch {
		case t["createOnly"] != true:
		case ofNamespace(o):
			t["kind"] = "namespace"
		case settings["eventDeliverySchema"] != "CloudEventSchemaV1_0":
			delete(t, "inputSchema")
		}
	}
}

// ofNamespace reports whether an event subscription belongs to a topic of a namespace.
func ofNamespace(o rest.Object) bool {
	return strings.Contains(strings.ToLower(textOf(o["type"])), "/namespaces/")
}

// subscription returns an event subscription in the form of the API, with its topic and name; nil if postrider does not
// support it.
func (a *azureReader) subscription(o rest.Object) rest.Object {
	f := a.file
	settings := rest.Object{"topic": cmp.Or(f.topic, azureTopic(textOf(o["topic"]))), "name": textOf(o["name"])}
	if settings["topic"] == "" {
		a.note("omitted, because %s is not a topic of postrider; use --topic to name the topic of its events",
			terminal.Cell(o["topic"]))
		return nil
	}
	if o["deliveryConfiguration"] != nil {
		if !ofNamespace(o) {
			a.note("omitted, because it has the deliveryConfiguration of a namespace; use subscription create")
			return nil
		}
		namespaced(o, settings)
	}
	pulled := pulled(settings)
	if url := f.endpoint(textOf(settings["topic"]), textOf(settings["name"])); url != "" && !pulled {
		batches := present(flattened(o["destination"]), "maxEventsPerBatch", "preferredBatchSizeInKilobytes",
			"deliveryAttributeMappings")
		batches["endpointType"], batches["endpointUrl"] = "WebHook", url
		o["destination"], o["deliveryWithResourceIdentity"] = batches, nil
	}
	given := flattened(o["destination"])
	if identity, ok := o["deliveryWithResourceIdentity"].(rest.Object); ok {
		a.note("deliveryWithResourceIdentity is not supported: deliveries have no token of Azure's")
		given = flattened(identity["destination"])
	}
	delete(o, "destination")
	if !pulled && !a.destination(given, f.connectionString(textOf(settings["topic"]), textOf(settings["name"]))) {
		return nil
	}
	maps.Copy(o, given)
	a.deadLetters(o)
	for i := range spec.Subscription {
		s := &spec.Subscription[i]
		fromAzure := s.Azure || s.Section == spec.DeadLetters || s.Section == spec.Destination
		if value := rest.ValueAt(o, s.Name); fromAzure && value != nil {
			setAt(settings, s.Name, value)
		}
	}
	if version := a.tlsVersion(o["minimumTlsVersionAllowed"]); version != "" {
		settings["minimumTlsVersionAllowed"] = version
	}
	return settings
}

// namespaced sets the members of an event subscription of a namespace that other event subscriptions do not have, or
// moves them to where those have them.
func namespaced(o, settings rest.Object) {
	filters, _ := o["filtersConfiguration"].(rest.Object)
	o["filter"] = present(rest.Object{
		"includedEventTypes": filters["includedEventTypes"], "advancedFilters": filters["filters"],
	}, "includedEventTypes", "advancedFilters")
	delivery, _ := o["deliveryConfiguration"].(rest.Object)
	if delivery["deliveryMode"] == "Queue" {
		settings["deliveryConfiguration"] = present(delivery, "deliveryMode", "queue")
		return
	}
	push, _ := delivery["push"].(rest.Object)
	maps.Copy(o, present(push, "destination", "deliveryWithResourceIdentity"))
	o["deadLetterWithResourceIdentity"] = push["deadLetterDestinationWithResourceIdentity"]
	settings["retryPolicy"] = present(push, "maxDeliveryCount", "eventTimeToLive")
}

// azureTopic returns the name of a topic: a custom one, or one of a domain or namespace. It returns "" for other
// resources, such as a storage account.
func azureTopic(id string) string {
	parts := strings.Split(strings.Trim(id, "/"), "/")
	if len(parts) < 2 || !strings.Contains(strings.ToLower(id), "/microsoft.eventgrid/") ||
		!strings.EqualFold(parts[len(parts)-2], "topics") {
		return ""
	}
	return parts[len(parts)-1]
}

// destination completes the members of a destination. It returns false if postrider cannot deliver to it.
func (a *azureReader) destination(d rest.Object, connectionString string) bool {
	a.headers(d)
	switch kind := anyCase(textOf(d["endpointType"]), destination.AzureTypes()); {
	case kind == string(destination.WebHook):
		return a.webhook(d)
	case slices.Contains(destination.AzureTypes(), kind):
		properties := present(d, "resourceId", "queueName", "queueMessageTimeToLiveInSeconds")
		if connectionString != "" {
			properties["connectionString"] = connectionString
		} else {
			a.note("the file has no key of its %s: use --connection-string %s=FILE", kind, a.name)
		}
		d["destination"] = rest.Object{"endpointType": kind, "properties": properties}
		return true
	case strings.EqualFold(kind, "AzureFunction"):
		a.note("omitted, because endpointType %s is not supported; use --endpoint %s=URL with the URL of the function's "+
			"HTTP trigger", kind, a.name)
	default:
		a.note("omitted, because endpointType %s is not supported; use --endpoint %s=URL to deliver to a webhook",
			terminal.Cell(d["endpointType"]), a.name)
	}
	return false
}

// webhook completes the members of a webhook. It returns false without a URL.
func (a *azureReader) webhook(d rest.Object) bool {
	if textOf(d["endpointUrl"]) == "" {
		d["endpointUrl"] = d["endpointBaseUrl"]
		a.note("the list has no endpointUrl, so a query string is missing; list with --include-full-endpoint-url true")
	}
	if textOf(d["endpointUrl"]) == "" {
		a.note("omitted, because it has no endpoint")
		return false
	}
	for _, member := range []string{"azureActiveDirectoryTenantId", "azureActiveDirectoryApplicationIdOrUri"} {
		if d[member] != nil {
			a.note("%s is not supported", member)
		}
	}
	return true
}

// headers converts the custom headers of a destination. Lists do not have the values of secret headers.
func (a *azureReader) headers(d rest.Object) {
	mappings, _ := d["deliveryAttributeMappings"].([]any)
	var headers []any
	for _, entry := range mappings {
		m := flattened(entry)
		if m["isSecret"] == true && (m["value"] == nil || m["value"] == "Hidden") {
			a.note("omitted secret header %s, because the list does not have its value; set it afterwards",
				terminal.Cell(m["name"]))
			continue
		}
		properties := present(m, "value", "isSecret")
		if m["type"] == "Dynamic" {
			properties = present(m, "sourceField")
		}
		headers = append(headers, rest.Object{"name": m["name"], "type": m["type"], "properties": properties})
	}
	delete(d, "deliveryAttributeMappings")
	if headers != nil {
		d["deliveryAttributeMappings"] = headers
	}
}

// tlsVersion returns the minimum version of TLS; "" for the default, also instead of a withdrawn version.
func (a *azureReader) tlsVersion(given any) string {
	version := textOf(given)
	if given == nil || slices.Contains(spec.Find(spec.Subscription, "minimumTlsVersionAllowed").Choices, version) {
		return version
	}
	a.note("minimumTlsVersionAllowed %s is not supported: the endpoint must offer TLS %s or later", terminal.Cell(given),
		endpointconf.TLS12)
	return ""
}

// present returns the named members that have a value.
func present(o rest.Object, names ...string) rest.Object {
	found := rest.Object{}
	for _, name := range names {
		if o[name] != nil {
			found[name] = o[name]
		}
	}
	return found
}

// deadLetters nests the members of a dead-letter destination as the REST API does.
func (a *azureReader) deadLetters(o rest.Object) {
	if identity, ok := o["deadLetterWithResourceIdentity"].(rest.Object); ok {
		a.note("deadLetterWithResourceIdentity is not supported; dead letters go to the location of serve " +
			"--dead-letter-container")
		o["deadLetterDestination"] = identity["deadLetterDestination"]
	}
	if o["deadLetterDestination"] != nil {
		flat := flattened(o["deadLetterDestination"])
		o["deadLetterDestination"] = rest.Object{
			"endpointType": flat["endpointType"], "properties": present(flat, "resourceId", "blobContainerName"),
		}
	}
}
