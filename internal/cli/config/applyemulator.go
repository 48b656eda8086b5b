package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"postrider/internal/catalog/spec"
	"postrider/internal/cli/rest"
	"postrider/internal/destination"
	"postrider/internal/terminal"
)

// emulatorReader reads the configuration of an emulator of Event Grid. Its names differ in letter case, which .NET's
// configuration ignores.
type emulatorReader struct{ *applyFile }

// fromEmulator adds the topics of a configuration of AzureEventGridSimulator, which has a list of topics with
// subscribers, or of Workleap's emulator, which has an object of topics with lists of URLs. It returns false if the
// document is neither.
func (f *applyFile) fromEmulator(o rest.Object) (bool, error) {
	e := emulatorReader{f}
	var err error
	switch topics := folded(o, "topics").(type) {
	case rest.Object:
		for _, urls := range topics {
			if _, ok := urls.([]any); !ok { // postrider's own form, with a mistake
				return false, nil
			}
		}
		err = e.urls(topics)
		e.others("", o, "topics")
	case []any:
		if !slices.ContainsFunc(topics, ofSimulator) {
			return false, nil
		}
		err = e.simulator(topics)
	default:
		return false, nil
	}
	return true, err
}

// ofSimulator reports whether a topic has members that only AzureEventGridSimulator has.
func ofSimulator(topic any) bool {
	o, _ := topic.(rest.Object)
	return folded(o, "subscribers") != nil || folded(o, "port") != nil
}

// folded is a member whose name may differ in letter case.
func folded(o rest.Object, name string) any {
	for given, value := range o {
		if strings.EqualFold(given, name) {
			return value
		}
	}
	return nil
}

// wrong is the error of a value.
func wrong(at string, value any, must string) error {
	text, _ := terminal.EncodePlainly(value)
	return fmt.Errorf("%s: must be %s, not %s", at, must,
		terminal.Cell(strings.TrimSpace(string(text))))
}

// others notes the members of an object that are not known.
func (e emulatorReader) others(at string, o rest.Object, known ...string) {
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if o[name] != nil && !slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, name) }) {
			e.note(strings.TrimPrefix(at+"."+name, "."), "omitted")
		}
	}
}

func (e emulatorReader) simulator(topics []any) error {
	for i, entry := range topics {
		at := fmt.Sprintf("topics[%d]", i)
		o, ok := entry.(rest.Object)
		if !ok {
			return wrong(at, entry, "an object with name and subscribers")
		}
		if err := e.simulatorTopic(at, o); err != nil {
			return err
		}
	}
	return nil
}

func (e emulatorReader) simulatorTopic(at string, o rest.Object) error {
	name := folded(o, "name")
	if textOf(name) == "" {
		return wrong(at+".name", name, "the name of a topic")
	}
	if off, err := flag(at, o, "disabled"); off || err != nil {
		e.note(at, "topic %s omitted, because it is disabled", terminal.Cell(name))
		return err
	}
	input, err := emulatorSchema(at, o, "inputSchema")
	if err != nil {
		return err
	}
	output, err := emulatorSchema(at, o, "outputSchema")
	if err != nil {
		return err
	}
	topic := rest.Object{"name": name}
	if input == "" {
		e.note(at, "topic %s takes only events of the Event Grid schema, because it has no inputSchema", terminal.Cell(name))
	} else {
		topic["inputSchema"] = input
	}
	if key := folded(o, "key"); key != nil {
		if problem := spec.KeyProblem(textOf(key), spec.DevKeyBytes); problem != "" {
			return fmt.Errorf("%s.key: %s", at, problem)
		}
		topic["key1"] = key
	}
	if port := folded(o, "port"); port != nil {
		e.note(at, "port %s is not opened; publish to /topics/%s/api/events, or to /api/events of host %[2]s.localhost",
			terminal.Cell(port), terminal.Cell(name))
	}
	known := []string{"name", "port", "key", "disabled", "inputSchema", "outputSchema", "subscribers"}
	for kind := range simulated {
		for _, member := range connectionMembers {
			known = append(known, kind+member)
		}
	}
	e.others(at, o, known...)
	list, err := e.subscribers(at+".subscribers", folded(o, "subscribers"))
	if err != nil {
		return err
	}
	var subs []any
	for _, s := range list {
		sub, err := e.subscriber(s, o, output)
		if err != nil {
			return err
		}
		if sub != nil {
			subs = append(subs, sub)
		}
	}
	if subs != nil {
		topic["subscriptions"] = subs
	}
	e.add("topics", topic)
	return nil
}

// placed is a subscriber with its path. kind is "" for a webhook, else one of simulated.
type placed struct {
	at, kind string
	value    any
}

// simulated are the destinations of AzureEventGridSimulator by the name of their list in lower case: the members that
// name the entity, each with the type that it means. Source: AzureEventGridSimulator 4, its settings of subscribers.
var simulated = map[string]map[string]destination.Type{
	"servicebus":   {"queue": destination.ServiceBusQueue, "topic": destination.ServiceBusTopic},
	"eventhub":     {"eventHubName": destination.EventHub},
	"storagequeue": {"queueName": destination.StorageQueue},
}

// connectionMembers are those of a destination, or of its topic: there, the name of the list is before theirs.
var connectionMembers = []string{"connectionString", "namespace", "sharedAccessKeyName", "sharedAccessKey"}

// subscribers are those of a topic: webhooks in a list in older files. It notes others.
func (e emulatorReader) subscribers(at string, given any) (list []placed, err error) {
	listed := func(at, kind string, value any) error {
		entries, ok := value.([]any)
		if !ok && value != nil {
			return wrong(at, value, "a list of subscribers")
		}
		for i, entry := range entries {
			list = append(list, placed{fmt.Sprintf("%s[%d]", at, i), kind, entry})
		}
		return nil
	}
	kinds, ok := given.(rest.Object)
	if !ok {
		return list, listed(at, "", given)
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		name := strings.TrimPrefix(strings.ToLower(kind), "http")
		if simulated[name] == nil && name != "" {
			e.note(at+"."+kind, "omitted")
			continue
		}
		if err := listed(at+"."+kind, name, kinds[kind]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// destination sets the destination of a subscriber, and its properties as headers. It returns false if postrider cannot
// deliver to it.
func (e emulatorReader) destination(s placed, o, topic, sub rest.Object) (bool, error) {
	given := rest.Object{}
	for _, member := range connectionMembers {
		value := folded(o, member)
		if value == nil {
			value = folded(topic, s.kind+member)
		}
		given[member] = value
	}
	if strings.Contains(strings.ToLower(textOf(given["connectionString"])), "usedevelopmentemulator=true") {
		e.note(s.at, "subscriber %s omitted: the emulators of Service Bus and Event Hubs have no HTTP API",
			terminal.Cell(folded(o, "name")))
		return false, nil
	}
	properties := present(given, "connectionString", "sharedAccessKeyName")
	if properties["connectionString"] == nil {
		namespace := textOf(given["namespace"])
		if namespace != "" && !strings.Contains(namespace, ".") {
			namespace += ".servicebus.windows.net"
		}
		rest.SetText(properties, "endpoint", namespace)
		rest.SetText(properties, "primaryKey", textOf(given["sharedAccessKey"]))
	}
	known := append([]string{"name", "disabled", "deliverySchema", "filter", "retryPolicy", "deadLetter", "properties"},
		connectionMembers...)
	to := rest.Object{"properties": properties}
	for member, kind := range simulated[s.kind] {
		known = append(known, member)
		if name := folded(o, member); name != nil {
			to["endpointType"] = kind
			properties[terminal.Either(kind == destination.StorageQueue, "queueName", "entityName")] = name
		}
	}
	if to["endpointType"] == nil {
		members := strings.Join(slices.Sorted(maps.Keys(simulated[s.kind])), " or ")
		return false, wrong(s.at+"."+members, nil, "text")
	}
	sub["destination"] = to
	var headers []any
	mappings, _ := folded(o, "properties").(rest.Object)
	for _, name := range slices.Sorted(maps.Keys(mappings)) {
		m, _ := mappings[name].(rest.Object)
		header := rest.Object{
			"name": name, "type": "Static", "properties": rest.Object{"value": folded(m, "value"), "isSecret": false},
		}
		if strings.EqualFold(textOf(folded(m, "type")), "dynamic") {
			header["type"], header["properties"] = "Dynamic", rest.Object{"sourceField": folded(m, "value")}
		}
		headers = append(headers, header)
	}
	if headers != nil {
		sub["deliveryAttributeMappings"] = headers
	}
	e.others(s.at, o, known...)
	return true, nil
}

// subscriber returns an event subscription; nil if it is disabled, or postrider cannot deliver to it.
func (e emulatorReader) subscriber(s placed, topic rest.Object, output string) (rest.Object, error) {
	at := s.at
	o, ok := s.value.(rest.Object)
	if !ok {
		return nil, wrong(at, s.value, "an object with name and endpoint")
	}
	for _, required := range []string{"name", "endpoint"} {
		if (s.kind == "" || required == "name") && textOf(folded(o, required)) == "" {
			return nil, wrong(at+"."+required, folded(o, required), "text")
		}
	}
	if off, err := flag(at, o, "disabled"); off || err != nil {
		e.note(at, "subscriber %s omitted, because it is disabled", terminal.Cell(folded(o, "name")))
		return nil, err
	}
	sub := rest.Object{"name": folded(o, "name")}
	if s.kind == "" {
		sub["endpointUrl"] = folded(o, "endpoint")
		e.others(at, o, "name", "endpoint", "disabled", "deliverySchema", "disableValidation", "filter", "retryPolicy",
			"deadLetter")
	} else if supported, err := e.destination(s, o, topic, sub); !supported || err != nil {
		return nil, err
	}
	schema, err := emulatorSchema(at, o, "deliverySchema")
	if err != nil {
		return nil, err
	}
	if schema == "" {
		schema = output
	}
	if schema != "" {
		sub["eventDeliverySchema"] = schema
	}
	skip, err := flag(at, o, "disableValidation")
	if err != nil {
		return nil, err
	}
	if skip && s.kind == "" {
		sub["endpointValidation"] = "skip"
	}
	if filter, ok := folded(o, "filter").(rest.Object); ok {
		sub["filter"] = e.members(at+".filter", filter, "includedEventTypes", "subjectBeginsWith", "subjectEndsWith",
			"isSubjectCaseSensitive", "advancedFilters")
	}
	if retry, ok := folded(o, "retryPolicy").(rest.Object); ok {
		settings := e.members(at+".retryPolicy", retry, "enabled", "maxDeliveryAttempts", "eventTimeToLiveInMinutes")
		if settings["enabled"] == false {
			settings["maxDeliveryAttempts"] = 1
		}
		delete(settings, "enabled")
		sub["retryPolicy"] = settings
	}
	if letters, ok := folded(o, "deadLetter").(rest.Object); ok {
		if e.members(at+".deadLetter", letters, "enabled")["enabled"] == false {
			sub["deadLetterDestination"] = rest.Object{"endpointType": "None"}
		}
	}
	return sub, nil
}

// members are those members that postrider has, with its names. It notes the others.
func (e emulatorReader) members(at string, o rest.Object, names ...string) rest.Object {
	found := rest.Object{}
	for _, name := range names {
		if value := folded(o, name); value != nil {
			found[name] = value
		}
	}
	e.others(at, o, names...)
	return found
}

func flag(at string, o rest.Object, name string) (bool, error) {
	value := folded(o, name)
	on, ok := value.(bool)
	if !ok && value != nil {
		return false, wrong(at+"."+name, value, "true or false")
	}
	return on, nil
}

// emulatorSchema is a schema by postrider's name; "" if there is none.
func emulatorSchema(at string, o rest.Object, member string) (string, error) {
	switch value := folded(o, member); {
	case value == nil:
		return "", nil
	case strings.EqualFold(textOf(value), "EventGridSchema"):
		return "EventGridSchema", nil
	case strings.EqualFold(textOf(value), "CloudEventV1_0"), strings.EqualFold(textOf(value), "CloudEventSchemaV1_0"):
		return "CloudEventSchemaV1_0", nil
	default:
		return "", wrong(at+"."+member, value, "EventGridSchema or CloudEventV1_0")
	}
}

// urls reads topics with lists of URLs. A topic with a consumer that pulls is one of a namespace: its clients publish
// to it as to such a topic.
func (e emulatorReader) urls(topics rest.Object) error {
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		at := "Topics." + name
		list, _ := topics[name].([]any)
		topic, subs, pushed := rest.Object{"name": name}, []any{}, 0
		for i, entry := range list {
			url := textOf(entry)
			consumer, pulled := strings.CutPrefix(url, "pull://")
			switch {
			case pulled && consumer != "":
				topic["kind"] = "namespace"
				subs = append(subs, rest.Object{
					"name": strings.TrimSuffix(consumer, "/"), "deliveryConfiguration": rest.Object{"deliveryMode": "Queue"},
				})
			case strings.HasPrefix(url, "http://"), strings.HasPrefix(url, "https://"):
				pushed++
				subs = append(subs, rest.Object{"name": fmt.Sprintf("webhook-%d", pushed), "endpointUrl": url})
			default:
				return wrong(fmt.Sprintf("%s[%d]", at, i), entry, "a URL as http://app:8080/events or pull://ledger")
			}
		}
		if topic["kind"] == "namespace" && pushed > 0 {
			e.note(at, "its webhooks get CloudEvents only, because it is a topic of a namespace")
		}
		topic["subscriptions"] = subs
		e.add("topics", topic)
	}
	return nil
}
