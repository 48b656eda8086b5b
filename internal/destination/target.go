package destination

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Target is the text that identifies the destination, without credentials: the same for two event subscriptions if and
// only if their events go to the same queue, topic, hub, hybrid connection or subject. It may be shown. "" for WebHook.
func (d *Destination) Target() string {
	if d.IsWebHook() || d.Properties == nil {
		return ""
	}
	p := d.Properties
	switch d.EndpointType {
	case Kafka:
		return "kafka://" + p.servers() + "/" + p.Topic
	case NatsJetStream:
		return "nats://" + p.servers() + "/" + p.Subject
	default: // services
	}
	base, entity, err := p.Address(d.EndpointType)
	if err != nil {
		return schemes[d.EndpointType] + "://"
	}
	return schemes[d.EndpointType] + "://" + strings.ToLower(base.Host) + strings.TrimSuffix(base.Path, "/") + "/" + entity
}

var schemes = map[Type]string{
	StorageQueue: "storagequeue", ServiceBusQueue: "servicebus", ServiceBusTopic: "servicebus", EventHub: "eventhub",
	HybridConnection: "hybridconnection",
}

// TargetWords are the words for the type of a Target, as far as its scheme shows it; "" for a URL of WebHook.
func TargetWords(target string) string {
	scheme, _, _ := strings.Cut(target, "://")
	switch scheme {
	case "kafka":
		return Kafka.Words()
	case "nats":
		return NatsJetStream.Words()
	case "servicebus":
		return "Service Bus"
	}
	for t, s := range schemes {
		if s == scheme {
			return t.Words()
		}
	}
	return ""
}

func (p *Properties) servers() string {
	return strings.ToLower(strings.Join(slices.Sorted(slices.Values(p.Servers)), ","))
}

// resource is the form of an Azure resource id's last part, the host of the public cloud for it, and what people call
// the entity.
type resource struct {
	provider, kind, child, host, entity string
}

// Source: Microsoft, Azure resource providers; each service's page of public endpoints.
var resources = map[Type]resource{
	StorageQueue:    {"Microsoft.Storage", "storageAccounts", "queues", ".queue.core.windows.net", "queue"},
	ServiceBusQueue: {"Microsoft.ServiceBus", "namespaces", "queues", ".servicebus.windows.net", "queue"},
	ServiceBusTopic: {"Microsoft.ServiceBus", "namespaces", "topics", ".servicebus.windows.net", "topic"},
	EventHub:        {"Microsoft.EventHub", "namespaces", "eventhubs", ".servicebus.windows.net", "hub"},
	HybridConnection: {
		"Microsoft.Relay", "namespaces", "hybridConnections", ".servicebus.windows.net", "hybrid connection",
	},
}

// Address returns the URL of the namespace or storage account, and the name of the queue, topic, hub or hybrid
// connection. endpoint and entityName (queueName of StorageQueue) go before the parts of resourceId, which stands for
// the host of the public cloud.
func (p *Properties) Address(t Type) (base *url.URL, entity string, err error) {
	var account string
	if p.ResourceID != "" {
		if account, entity, err = resources[t].parse(p.ResourceID); err != nil {
			return nil, "", err
		}
	}
	if t == StorageQueue {
		entity = cmp.Or(p.QueueName, entity)
	} else {
		entity = cmp.Or(p.EntityName, entity)
	}
	if p.Endpoint == "" && account == "" {
		return nil, "", fmt.Errorf("must have resourceId, endpoint or connectionString")
	}
	base, err = url.Parse(cmp.Or(p.Endpoint, "https://"+account+resources[t].host))
	return base, entity, err
}

// parse returns the names of the account or namespace, and of the entity, which may be absent. Names of parts are
// compared without regard to case, as Azure does.
func (r resource) parse(id string) (account, entity string, err error) {
	parts := strings.Split(strings.Trim(id, "/"), "/")
	n := slices.IndexFunc(parts, func(part string) bool { return strings.EqualFold(part, r.provider) })
	if n < 0 || len(parts) < n+3 || !strings.EqualFold(parts[n+1], r.kind) {
		return "", "", fmt.Errorf("must be the id of a resource /subscriptions/…/providers/%s/%s/NAME/%s/NAME", r.provider,
			r.kind, r.child)
	}
	account = parts[n+2]
	for i := n + 3; i+1 < len(parts); i += 2 {
		if strings.EqualFold(parts[i], r.child) {
			entity = parts[i+1]
		}
	}
	return account, entity, nil
}

// PlainBy is the property that makes connections to a service or broker plain, without TLS; "" = none does.
func (d *Destination) PlainBy() string {
	switch p := d.Properties; {
	case p == nil:
	case d.Type().IsBroker() && !p.UseTLS():
		return propertiesField + "tls"
	case strings.HasPrefix(p.Endpoint, "http://"):
		return propertiesField + "endpoint"
	}
	return ""
}

// secretNames are the properties that are sealed and never shown.
var secretNames = []string{
	"primaryKey", "secondaryKey", "sharedAccessSignature", "connectionString", "password", "credentials",
}

// secrets are the values of secretNames.
func (p *Properties) secrets() []*string {
	return []*string{
		&p.PrimaryKey, &p.SecondaryKey, &p.SharedAccessSignature, &p.ConnectionString, &p.Password, &p.Credentials,
	}
}

// SecretsByName are the secrets that are set, by the names of their properties.
func (d *Destination) SecretsByName() map[string]string {
	set := map[string]string{}
	if d == nil || d.Properties == nil {
		return set
	}
	for i, secret := range d.Properties.secrets() {
		if *secret != "" {
			set[secretNames[i]] = *secret
		}
	}
	return set
}

// Secrets are the values that must not be shown or stored with a response. They include the signature of a SAS token:
// services repeat the parameters of requests in another order.
func (d *Destination) Secrets() []string {
	set := d.SecretsByName()
	list := slices.Collect(maps.Values(set))
	separator := func(r rune) bool { return r == '&' || r == ' ' }
	for part := range strings.FieldsFuncSeq(set["sharedAccessSignature"], separator) {
		if signature, found := strings.CutPrefix(part, "sig="); found {
			list = append(list, signature)
			if plain, err := url.QueryUnescape(signature); err == nil && plain != signature {
				list = append(list, plain)
			}
		}
	}
	return list
}

// WithoutSecrets returns what may be shown.
func (d *Destination) WithoutSecrets() *Destination {
	if d == nil || d.Properties == nil {
		return d
	}
	shown, properties := *d, *d.Properties
	for _, secret := range properties.secrets() {
		*secret = ""
	}
	shown.Properties = &properties
	return &shown
}

// OnlySecrets returns what must be sealed, in the form that JSON adds to WithoutSecrets; nil if there is none.
func (d *Destination) OnlySecrets() *Destination {
	if len(d.Secrets()) == 0 {
		return nil
	}
	only := &Properties{}
	all := *d.Properties
	for i, secret := range only.secrets() {
		*secret = *all.secrets()[i]
	}
	return &Destination{EndpointType: d.EndpointType, Properties: only}
}

// KeepSecrets returns d with the stored secrets if it has none, and the target and the names of its credentials are the
// stored ones, or absent. Otherwise a user who does not know the secrets could have them sent to an address of their
// choice, or without TLS. oauth2 and another saslMechanism replace them. Keys are kept or replaced together, so a
// request with primaryKey only removes secondaryKey. It does not change d.
func (d *Destination) KeepSecrets(stored *Destination, oauth2 bool) *Destination {
	if d == nil || d.Properties == nil || len(d.Secrets()) > 0 || len(stored.Secrets()) == 0 ||
		d.EndpointType != stored.EndpointType || d.Target() != stored.Target() ||
		oauth2 && d.EndpointType != HybridConnection { // its listener gets the token, the service the key
		return d
	}
	kept, properties, of := *d, *d.Properties, stored.Properties
	plain := func(p *Properties) bool { return !p.UseTLS() || strings.HasPrefix(p.Endpoint, "http://") }
	properties.SharedAccessKeyName = cmp.Or(properties.SharedAccessKeyName, of.SharedAccessKeyName)
	properties.Username = cmp.Or(properties.Username, of.Username)
	if properties.SharedAccessKeyName != of.SharedAccessKeyName || properties.Username != of.Username ||
		properties.SASLMechanism != of.SASLMechanism || plain(&properties) && !plain(of) {
		return d
	}
	for i, secret := range properties.secrets() {
		*secret = *of.secrets()[i]
	}
	kept.Properties = &properties
	return &kept
}

// LostSecret names a secret that d must state again, as its target is another one than the stored; "" if there is none.
// Without it the requests of these types would have no credentials, though the stored ones have.
func (d *Destination) LostSecret(stored *Destination) string {
	anonymous := d.Type() == NatsJetStream || d.Type() == HybridConnection
	if !anonymous || d.Type() != stored.Type() || d.Target() == stored.Target() || len(d.Secrets()) > 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(stored.SecretsByName()))
	return append(names, "")[0]
}
