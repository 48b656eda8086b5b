package destination

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/filter"
)

// Surroundings are what decides about a destination besides its properties.
type Surroundings struct {
	// Attributes are those of deliveryAttributeMappings.
	Attributes []endpointconf.DeliveryAttribute
	// Schema is the delivery schema.
	Schema event.Schema
	// OAuth2 is whether the setting oauth2 is there.
	OAuth2 bool
	// Allow are the opened address ranges. AllowHTTP is whether public addresses may be called without TLS.
	Allow     []netip.Prefix
	AllowHTTP bool
}

// check collects mistakes.
type check struct {
	Surroundings
	t     Type
	p     *Properties
	found []filter.ValidationError
}

func (c *check) add(property, format string, args ...any) {
	c.found = append(c.found, filter.ValidationError{
		Field: propertiesField + property, Message: fmt.Sprintf(format, args...),
	})
}

// Mistakes lists what is wrong with d, which Normalize returned and KeepSecrets completed. Package spec has the
// lengths, the choices, and which type has which property. No message repeats a secret.
func (d *Destination) Mistakes(s Surroundings) []filter.ValidationError {
	if d.IsWebHook() || d.Properties == nil {
		return nil
	}
	c := check{Surroundings: s, t: d.Type(), p: d.Properties}
	c.characters()
	switch c.t {
	case Kafka:
		c.kafka()
	case NatsJetStream:
		c.nats()
	default:
		c.address()
		c.keys()
	}
	c.attributes()
	return c.found
}

// each calls f for every property with its JSON name.
func (p *Properties) each(f func(name string, value reflect.Value)) {
	v := reflect.ValueOf(p).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		f(name, v.Field(i))
	}
}

// present returns those of the names whose properties are set.
func (c *check) present(names ...string) (set []string) {
	c.p.each(func(name string, value reflect.Value) {
		if slices.Contains(names, name) && !value.IsZero() {
			set = append(set, name)
		}
	})
	return set
}

// absent returns those of the names whose properties are not set.
func (c *check) absent(names ...string) []string {
	set := c.present(names...)
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(set, name) })
}

// characters checks all texts but credentials, which have lines.
func (c *check) characters() {
	c.p.each(func(name string, value reflect.Value) {
		if value.Kind() == reflect.String && name != "credentials" &&
			(!filter.Storable(value.String()) || strings.ContainsFunc(value.String(), unicode.IsControl)) {
			c.add(name, "must be UTF-8 without control characters")
		}
	})
}

// address checks where the entity is, and its name.
func (c *check) address() {
	field, name := "endpoint", "entityName"
	if c.t == StorageQueue {
		name = "queueName"
	}
	if c.p.Endpoint == "" {
		field = "resourceId"
	}
	base, entity, err := c.p.Address(c.t)
	if err != nil && c.p.ResourceID == "" && c.p.Endpoint == "" {
		c.add("endpoint", "is required, or resourceId or connectionString")
		return
	}
	if err != nil && field == "resourceId" || c.p.ResourceID != "" && c.idProblem() {
		c.add("resourceId", "must be /subscriptions/…/providers/%s/%s/NAME/%s/NAME, is %q", resources[c.t].provider,
			resources[c.t].kind, resources[c.t].child, cut(c.p.ResourceID, 200))
		return
	}
	if err != nil {
		c.add(field, "must be a URL, such as https://NAME%s", resources[c.t].host)
		return
	}
	u, err := endpointconf.EndpointURL(base.String(), c.Allow)
	switch {
	case err != nil:
		c.add(field, "%s", message(err))
	case u.RawQuery != "" || u.ForceQuery:
		c.add(field, "must have no query: write a signature into sharedAccessSignature")
	case c.t != StorageQueue && strings.Trim(u.Path, "/") != "":
		c.add(field, "must have no path: write the name of the %s into entityName", resources[c.t].entity)
	case c.t == StorageQueue && storageHost(u) && strings.Trim(u.Path, "/") != "":
		c.add(field, "must have no path: write the name of the queue into queueName")
	case c.t == StorageQueue && (storageAccount(u) == "" || strings.Contains(strings.Trim(u.Path, "/"), "/")):
		c.add(field, "must have the account in its host, https://ACCOUNT%s, or as its path, as emulators have it: "+
			"http://127.0.0.1:10001/%s", resources[c.t].host, emulatorAccount)
	case endpointconf.PlainEndpoint(u, c.Allow) == nil:
	case c.OAuth2 || len(c.present("primaryKey", "sharedAccessSignature")) > 0:
		c.add(field, "must be https: the credentials would be readable; plain http is for networks that --allow-cidr opens")
	case !c.AllowHTTP:
		c.add(field, "%s", message(endpointconf.PlainEndpoint(u, c.Allow)))
	}
	if c.p.ResourceID != "" {
		if _, named, _ := resources[c.t].parse(c.p.ResourceID); named != "" && !strings.EqualFold(named, entity) {
			c.add(name, "must be absent, or %q as in resourceId, is %q", cut(named, 80), cut(entity, 80))
			return
		}
	}
	switch {
	case entity == "":
		c.add(name, "is required, or the name of the %s in resourceId", resources[c.t].entity)
	case c.t == StorageQueue && !queueName(entity):
		c.add(name, "must be 3 to 63 lower-case letters, digits and single hyphens between them, is %q", cut(entity, 80))
	case c.t != StorageQueue && !busEntity(entity):
		c.add(name, "must be 1 to %d letters, digits, '.', '_', '-', '~' and '/' between them, is %q", maxBusEntity,
			cut(entity, 80))
	}
	if ttl := c.p.QueueMessageTimeToLiveInSeconds; ttl != nil && *ttl != -1 && (*ttl < 1 || *ttl > math.MaxInt32) {
		c.add("queueMessageTimeToLiveInSeconds", "must be 1 to %d, or -1 for messages that never expire, is %d",
			math.MaxInt32, *ttl)
	}
}

func (c *check) idProblem() bool {
	_, _, err := resources[c.t].parse(c.p.ResourceID)
	return err != nil
}

// message is the text of an error of endpointconf without its field.
func message(err error) string {
	var invalid *filter.ValidationError
	if errors.As(err, &invalid) {
		return invalid.Message
	}
	return err.Error()
}

// keys checks the credentials of Azure's types.
func (c *check) keys() {
	given := c.present("primaryKey", "secondaryKey")
	signature := c.p.SharedAccessSignature
	for _, name := range given {
		key := c.p.PrimaryKey
		if name == "secondaryKey" {
			key = c.p.SecondaryKey
		}
		if _, err := base64.StdEncoding.DecodeString(key); c.t == StorageQueue && err != nil {
			c.add(name, "%s", errStorageKey)
		}
	}
	switch {
	case c.p.ConnectionString != "":
		c.add("connectionString", "must be divided into its parts")
	case len(given) == 0 && signature == "" && !c.OAuth2 && c.t != HybridConnection: // its senders may be anonymous
		c.add("primaryKey", "is required, or sharedAccessSignature, connectionString or oauth2")
	case len(given) > 0 && signature != "":
		c.add("sharedAccessSignature", "must be absent beside primaryKey: omit one of them")
	case (len(given) > 0 || signature != "") && c.OAuth2 && c.t != HybridConnection: // Relay's listener may use oauth2
		c.add(append(given, "sharedAccessSignature")[0], "must be absent beside oauth2: omit one of them")
	}
	if c.p.SecondaryKey != "" && c.p.PrimaryKey == "" {
		c.add("primaryKey", "is required beside secondaryKey")
	} else if c.p.SecondaryKey != "" && c.p.SecondaryKey == c.p.PrimaryKey {
		c.add("secondaryKey", "must differ from primaryKey")
	}
	if c.t == StorageQueue {
		if strings.Contains(signature, " ") || endpointconf.EncodingProblem("https://a/?"+signature) != "" ||
			signature != "" && !strings.Contains("&"+signature, "&sig=") {
			c.add("sharedAccessSignature", "must be the query of a URL, percent-encoded, with sig=")
		}
		return
	}
	if signature != "" && (!strings.Contains(signature, "sig=") || !strings.Contains(signature, "sr=")) {
		c.add("sharedAccessSignature", "must be a token with sr=, sig=, se= and skn=")
	}
	required := !c.OAuth2 && c.t != HybridConnection // its absence is the mistake
	if named := c.p.SharedAccessKeyName != ""; named && !required && len(given) == 0 && signature == "" {
		c.add("sharedAccessKeyName", "must be absent without primaryKey")
	} else if !named && len(given) > 0 {
		c.add("sharedAccessKeyName", "is required beside primaryKey: it is the name of the shared access policy")
	}
}

// attributes checks the names that deliveryAttributeMappings gives to properties of messages.
func (c *check) attributes() {
	list := c.Attributes
	add := func(i int, member, format string, args ...any) {
		c.found = append(c.found, filter.ValidationError{
			Field: fmt.Sprintf("deliveryAttributeMappings[%d].%s", i, member), Message: fmt.Sprintf(format, args...),
		})
	}
	if c.t == StorageQueue && len(list) > 0 {
		c.found = append(c.found, filter.ValidationError{
			Field: "deliveryAttributeMappings", Message: "must be absent: messages of a storage queue have no properties",
		})
		return
	}
	reserved := []string{"authorization"}
	switch c.t {
	case HybridConnection:
		reserved = append(reserved, "servicebusauthorization")
	case Kafka:
		reserved = []string{"content-type"}
	case NatsJetStream:
		reserved = nil
	default:
	}
	first := map[string]int{}
	for i, a := range list {
		name := strings.ToLower(a.Name)
		switch {
		case slices.Contains(reserved, name):
			add(i, "name", "must not be %s: postrider sets it", a.Name)
		case c.t == NatsJetStream && strings.HasPrefix(name, natsHeaders):
			add(i, "name", "must not begin with Nats-: those headers are the server's")
		case c.t == Kafka && strings.HasPrefix(name, "ce_"):
			add(i, "name", "must not begin with ce_: those headers are CloudEvents'")
		}
		first[a.Name] = i
	}
	if c.t != ServiceBusQueue && c.t != ServiceBusTopic {
		return
	}
	session, hasSession := first["SessionId"]
	id, hasID := first["MessageId"]
	if hasID && list[id].Type != endpointconf.AttributeDynamic {
		add(id, "type", "must be Dynamic for MessageId: Service Bus drops messages whose id it knows")
	}
	if hasID && hasSession {
		add(max(id, session), "name", "must not be %s: SessionId and MessageId cannot both be set",
			list[max(id, session)].Name)
	}
	if partition, has := first[partitionKey]; has && hasSession && !sameValue(&list[partition], &list[session]) {
		add(partition, "properties", "must be those of SessionId: Service Bus needs the same value in both")
	}
}

func sameValue(a, b *endpointconf.DeliveryAttribute) bool {
	text := func(p *string) string {
		if p == nil {
			return ""
		}
		return *p
	}
	return a.Type == b.Type && a.SourceField == b.SourceField && text(a.Value) == text(b.Value)
}
