package destination_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/destination"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
)

const creds = "-----BEGIN NATS USER JWT-----\neyJ0.eyJq.c2ln\n------END NATS USER JWT------\n\nIMPORTANT\n" +
	"-----BEGIN USER NKEY SEED-----\nSUAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n" +
	"------END USER NKEY SEED------\n"

// setup is what the check receives.
type setup struct {
	destination.Surroundings
	p destination.Properties
}

func (s *setup) mistakes(kind destination.Type) (found []string) {
	d := &destination.Destination{EndpointType: kind, Properties: &s.p}
	for _, m := range d.Mistakes(s.Surroundings) {
		found = append(found, strings.TrimPrefix(m.Field, "destination.properties.")+": "+m.Message)
	}
	return found
}

// right is a destination without mistakes.
func right(kind destination.Type) *setup {
	s := &setup{p: bus(kind)}
	s.Schema = event.EventGrid
	switch kind {
	case kafka:
		s.p = destination.Properties{Servers: []string{"a.test:9092", "8.8.8.8:9092"}, Topic: "orders"}
	case nats:
		s.p = destination.Properties{Servers: []string{"a.test:4222"}, Subject: "orders.new"}
	case queue:
		s.p.PrimaryKey = storageKey
	default:
		s.p.SharedAccessKeyName, s.p.PrimaryKey = "send", busKey
	}
	return s
}

const (
	kafka = destination.Kafka
	nats  = destination.NatsJetStream
	topic = destination.ServiceBusTopic
)

func (s *setup) open(prefix string) { s.Allow = append(s.Allow, netip.MustParsePrefix(prefix)) }

// attribute adds a Static attribute, or a Dynamic one if the value begins with =.
func (s *setup) attribute(name, value string) {
	a := endpointconf.DeliveryAttribute{Name: name, Type: endpointconf.AttributeStatic}
	a.Value = &value
	if path, dynamic := strings.CutPrefix(value, "="); dynamic {
		a.Type, a.AttributeProperties = endpointconf.AttributeDynamic, endpointconf.AttributeProperties{SourceField: path}
	}
	s.Attributes = append(s.Attributes, a)
}

func TestNoMistakes(t *testing.T) {
	t.Parallel()
	no, ttl, most := false, -1, 1<<31-1
	for i, tt := range []struct {
		kinds  []destination.Type
		change func(*setup)
	}{
		{[]destination.Type{sb, topic, eh, relay, queue, kafka, nats}, func(*setup) {}},
		{[]destination.Type{sb, topic, eh, relay, queue}, func(s *setup) { s.p.SecondaryKey = otherKey }},
		{[]destination.Type{sb, eh, relay}, func(s *setup) { s.p.EntityName = strings.Repeat("a/B", 86) + ".~" }},
		{[]destination.Type{sb, queue}, func(s *setup) { s.p.PrimaryKey, s.p.SharedAccessKeyName, s.OAuth2 = "", "", true }},
		{[]destination.Type{relay}, func(s *setup) { s.p.PrimaryKey, s.p.SharedAccessKeyName = "", "" }},
		{[]destination.Type{relay}, func(s *setup) { s.OAuth2 = true }},
		{[]destination.Type{queue}, func(s *setup) { s.p.QueueMessageTimeToLiveInSeconds = &ttl }},
		{[]destination.Type{queue}, func(s *setup) { s.p.QueueMessageTimeToLiveInSeconds = &most }},
		{[]destination.Type{queue}, func(s *setup) {
			s.p.Endpoint = "http://127.0.0.1:10001/devstoreaccount1"
			s.open("127.0.0.0/8")
		}},
		{[]destination.Type{nats}, func(s *setup) { s.p.Password = "token" }},
		{[]destination.Type{sb}, func(s *setup) {
			s.attribute("MessageId", "=data.id")
			s.attribute("PartitionKey", "=subject")
		}},
		{[]destination.Type{sb}, func(s *setup) {
			s.attribute("SessionId", "x")
			s.attribute("PartitionKey", "x")
		}},
		{[]destination.Type{queue}, func(s *setup) {
			s.p.Endpoint, s.p.QueueName = "", ""
			s.p.ResourceID = "/subscriptions/1/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/shop/" +
				"queueServices/default/queues/orders"
		}},
		{[]destination.Type{eh, nats}, func(s *setup) {
			s.attribute("MessageId", "x")
			s.attribute("SessionId", "y")
		}},
		{[]destination.Type{kafka}, func(s *setup) { s.Schema, s.p.ContentMode = event.CloudEvents, destination.Binary }},
		{[]destination.Type{kafka}, func(s *setup) { s.p.MessageKey = "data.customer" }},
		{[]destination.Type{kafka}, func(s *setup) {
			s.p.SASLMechanism, s.p.Username, s.p.Password = destination.SASLPlain, "u", "p"
			s.p.Servers, s.p.TLS = []string{"10.0.0.1:9092", "a.test:9092"}, &no
			s.open("10.0.0.0/8")
		}},
		{[]destination.Type{kafka}, func(s *setup) { s.p.SASLMechanism, s.OAuth2 = destination.SASLOAuthBearer, true }},
		{[]destination.Type{kafka, nats}, func(s *setup) { s.p.TLS, s.AllowHTTP = &no, true }},
		{[]destination.Type{nats}, func(s *setup) { s.p.Credentials, s.p.Stream = creds, "ORDERS" }},
		{[]destination.Type{nats}, func(s *setup) { s.p.Username, s.p.Password = "u", "p" }},
	} {
		for _, kind := range tt.kinds {
			s := right(kind)
			tt.change(s)
			require.Empty(t, s.mistakes(kind), "%d %s", i, kind)
		}
	}
	var none *destination.Destination
	require.Empty(t, none.Mistakes(destination.Surroundings{}))
	require.Empty(t, (&setup{}).mistakes(destination.WebHook))
}

var mistaken = []struct {
	kind   destination.Type
	change func(*setup)
	want   string // beginnings, with a line for each
}{
	{sb, func(s *setup) { s.p.SharedAccessKeyName = "a\nb" }, "sharedAccessKeyName: must be UTF-8 without control"},

	{sb, func(s *setup) { s.p.Endpoint = "" }, "endpoint: is required, or resourceId or connectionString"},
	{sb, func(s *setup) { s.p.EntityName = "" }, "entityName: is required, or the name of the queue in resourceId"},
	{
		topic, func(s *setup) { s.p.ResourceID = "/x" },
		"resourceId: must be /subscriptions/…/providers/Microsoft.ServiceBus/" +
			"namespaces/NAME/topics/NAME",
	},
	{
		sb, func(s *setup) { s.p.EntityName = "a b" },
		`entityName: must be 1 to 260 letters, digits, '.', '_', '-', '~' and '/' ` +
			`between them, is "a b"`,
	},
	{sb, func(s *setup) { s.p.EntityName = "a/../b" }, "entityName: must be 1 to 260"},
	{eh, func(s *setup) { s.p.EntityName = strings.Repeat("a", 261) }, "entityName: must be 1 to 260"},
	{eh, func(s *setup) { s.p.Endpoint = "ftp://a" }, "endpoint: must be an absolute http or https URL"},
	{eh, func(s *setup) { s.p.Endpoint = "https://10.0.0.1" }, "endpoint: must not be at 10.0.0.1: private"},
	{eh, func(s *setup) { s.p.Endpoint = "https://a.test:25" }, "endpoint: must not have port 25"},
	{eh, func(s *setup) { s.p.Endpoint = "http://a.test" }, "endpoint: must be https"},
	{eh, func(s *setup) { s.p.Endpoint, s.AllowHTTP = "http://a.test", true }, "endpoint: must be https: the credentials"},
	{sb, func(s *setup) {
		s.p.ResourceID = "/subscriptions/1/providers/Microsoft.ServiceBus/namespaces/n/queues/other"
	}, `entityName: must be absent, or "other" as in resourceId, is "orders"`},
	{eh, func(s *setup) { s.p.Endpoint = "https://a.test?sig=S3CRET" }, "endpoint: must have no query"},
	{eh, func(s *setup) { s.p.Endpoint = "https://a.test/hub" }, "endpoint: must have no path: write the name of the hub"},
	{eh, func(s *setup) { s.p.Endpoint = "https://a:S3CRET@b.test" }, "endpoint: must not contain a user name or passwor"},
	{eh, func(s *setup) { s.p.Endpoint = "://S3CRET" }, "endpoint: must be a URL, such as https://NAME.servicebus"},
	{queue, func(s *setup) { s.p.Endpoint += "/orders" }, "endpoint: must have no path: write the name of the queue"},
	{queue, func(s *setup) { s.p.Endpoint = "https://a.test" }, "endpoint: must have the account in its host"},
	{queue, func(s *setup) { s.p.Endpoint = "https://a.test/b/c" }, "endpoint: must have the account in its host"},
	{queue, func(s *setup) { s.p.QueueName = "" }, "queueName: is required"},
	{
		queue, func(s *setup) { s.p.QueueName = "ab" },
		`queueName: must be 3 to 63 lower-case letters, digits and single hyphens ` +
			`between them, is "ab"`,
	},
	{queue, func(s *setup) { s.p.QueueName = "Abc" }, "queueName: must be 3 to 63"},
	{queue, func(s *setup) { s.p.QueueName = "a--b" }, "queueName: must be 3 to 63"},
	{queue, func(s *setup) { s.p.QueueName = "-ab" }, "queueName: must be 3 to 63"},
	{
		queue, func(s *setup) { s.p.QueueMessageTimeToLiveInSeconds = new(int) },
		"queueMessageTimeToLiveInSeconds: must be 1 to " +
			"2147483647, or -1 for messages that never expire, is 0",
	},

	{queue, func(s *setup) { s.p.PrimaryKey = "S3CRET!" }, "primaryKey: must be a storage account's key, which is base64"},
	{queue, func(s *setup) { s.p.SecondaryKey = "S3CRET!" }, "secondaryKey: must be a storage account's key"},
	{sb, func(s *setup) { s.p.PrimaryKey, s.p.SharedAccessKeyName = "", "" }, "primaryKey: is required, or sharedAccessS"},
	{sb, func(s *setup) { s.p.SharedAccessSignature = "sr=a&sig=S3CRET" }, "sharedAccessSignature: must be absent beside"},
	{sb, func(s *setup) { s.OAuth2 = true }, "primaryKey: must be absent beside oauth2"},
	{sb, func(s *setup) { s.p.SecondaryKey = busKey }, "secondaryKey: must differ from primaryKey"},
	{sb, func(s *setup) { s.p.PrimaryKey, s.p.SecondaryKey = "", busKey }, "primaryKey: is required beside secondaryKey"},
	{sb, func(s *setup) { s.p.SharedAccessKeyName = "" }, "sharedAccessKeyName: is required beside primaryKey"},
	{sb, func(s *setup) { s.p.PrimaryKey, s.OAuth2 = "", true }, "sharedAccessKeyName: must be absent without primaryKey"},
	{sb, func(s *setup) { s.p.PrimaryKey, s.p.SharedAccessSignature = "", "S3CRET" }, "sharedAccessSignature: must be a"},
	{
		queue, func(s *setup) { s.p.PrimaryKey, s.p.SharedAccessSignature = "", "sig=S3C RET" },
		"sharedAccessSignature: must be " +
			"the query of a URL, percent-encoded, with sig=",
	},
	{queue, func(s *setup) { s.p.PrimaryKey, s.p.SharedAccessSignature = "", "S3CRET" }, "sharedAccessSignature: must be"},
	{sb, func(s *setup) { s.p.ConnectionString = "S3CRET" }, "connectionString: must be divided into its parts"},

	{queue, func(s *setup) { s.attribute("x", "y") }, "deliveryAttributeMappings: must be absent"},
	{sb, func(s *setup) { s.attribute("authorization", "S3CRET") }, "deliveryAttributeMappings[0].name: must not be auth"},
	{relay, func(s *setup) { s.attribute("ServiceBusAuthorization", "y") }, "deliveryAttributeMappings[0].name: must not"},
	{sb, func(s *setup) { s.attribute("MessageId", "y") }, "deliveryAttributeMappings[0].type: must be Dynamic for Messa"},
	{topic, func(s *setup) {
		s.attribute("MessageId", "=id")
		s.attribute("SessionId", "y")
	}, "deliveryAttributeMappings[1].name: must not be SessionId: SessionId and MessageId cannot both be set"},
	{sb, func(s *setup) {
		s.attribute("SessionId", "y")
		s.attribute("PartitionKey", "=id")
	}, "deliveryAttributeMappings[1].properties: must be those of SessionId"},
	{sb, func(s *setup) {
		s.attribute("SessionId", "S3CRET")
		s.attribute("PartitionKey", "S3CRETS")
	}, "deliveryAttributeMappings[1].properties: must be those of SessionId"},
	{kafka, func(s *setup) { s.attribute("Content-Type", "y") }, "deliveryAttributeMappings[0].name: must not be Content"},
	{kafka, func(s *setup) { s.attribute("CE_id", "y") }, "deliveryAttributeMappings[0].name: must not begin with ce_"},
	{nats, func(s *setup) { s.attribute("nats-msg-id", "y") }, "deliveryAttributeMappings[0].name: must not begin with N"},

	{kafka, func(s *setup) { s.p.Servers = nil }, "servers: must have 1 to 16 entries, has 0"},
	{kafka, func(s *setup) { s.p.Servers = strings.Split(strings.Repeat("a:9092 ", 17), " ")[:17] }, "servers: must"},
	{kafka, func(s *setup) { s.p.Servers[1] = "a.test" }, "servers[1]: must be host:port"},
	{kafka, func(s *setup) { s.p.Servers[0] = "a.test:9092/x" }, "servers[0]: must be host:port"},
	{kafka, func(s *setup) { s.p.Servers[0] = "u:S3CRET@a.test:9092" }, "servers[0]: must be host:port"},
	{kafka, func(s *setup) { s.p.Servers[0] = "a.test:99999" }, "servers[0]: must have a port from 1 to 65535"},
	{kafka, func(s *setup) { s.p.Servers[0] = "127.0.0.1:9092" }, "servers[0]: must not be at 127.0.0.1: loopback"},
	{nats, func(s *setup) { s.p.Servers[0] = "metadata.google.internal:80" }, "servers[0]: must not name a cloud's metad"},
	{
		kafka, func(s *setup) { s.p.TLS = new(bool) },
		"servers[0]: must be in a network that --allow-cidr opens if tls is false, " +
			"unless the service runs with --allow-http\nservers[1]: must be in a network",
	},
	{kafka, func(s *setup) {
		s.p.SASLMechanism, s.p.Username, s.p.Password = destination.SASLScram512, "u", "S3CRET"
		s.p.TLS, s.AllowHTTP = new(bool), true
		s.open("10.0.0.0/8") // the name may be in it, the address is not
	}, "servers[1]: must be in a network that --allow-cidr opens if tls is false: the credentials would be readable"},
	{
		nats, func(s *setup) { s.p.Servers[0], s.p.TLS, s.AllowHTTP = "tls://a:1", new(bool), true },
		"servers[0]: must not begin with " +
			"tls:// if tls is false",
	},
	{kafka, func(s *setup) { s.p.Topic = "" }, "topic: is required"},
	{kafka, func(s *setup) { s.p.Topic = ".." }, "topic: must be 1 to 249 letters"},
	{
		kafka, func(s *setup) { s.p.Topic = "a b" },
		`topic: must be 1 to 249 letters, digits, '.', '_' and '-', not . or .., is "a b"`,
	},
	{kafka, func(s *setup) { s.p.MessageKey = "data..x" }, "messageKey: must be none, id, subject, partitionkey or the p"},
	{kafka, func(s *setup) { s.p.ContentMode = "x" }, `contentMode: must be structured or binary, is "x"`},
	{kafka, func(s *setup) { s.p.ContentMode = destination.Binary }, "contentMode: must be structured unless eventDelive"},
	{
		kafka, func(s *setup) { s.p.SASLMechanism = "GSSAPI" },
		`saslMechanism: must be none, PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or ` +
			`OAUTHBEARER, is "GSSAPI"`,
	},
	{
		kafka, func(s *setup) { s.p.SASLMechanism = destination.SASLPlain },
		"username: is required by saslMechanism PLAIN\n" +
			"password: is required by",
	},
	{kafka, func(s *setup) { s.p.Password = "S3CRET" }, "password: must be absent unless saslMechanism is PLAIN"},
	{kafka, func(s *setup) { s.OAuth2 = true }, "oauth2: must be absent unless saslMechanism is OAUTHBEARER"},
	{kafka, func(s *setup) { s.p.SASLMechanism = destination.SASLOAuthBearer }, "saslMechanism: needs oauth2"},

	{nats, func(s *setup) { s.p.Subject = "" }, "subject: is required"},
	{nats, func(s *setup) { s.p.Subject = "a.*" }, `subject: must have no spaces and no wildcards * and >, is "a.*"`},
	{nats, func(s *setup) { s.p.Subject = "a..b" }, "subject: must be tokens with a dot between them"},
	{nats, func(s *setup) { s.p.Subject = "$JS.API.STREAM.DELETE.x" }, "subject: must not begin with $JS or $SYS"},
	{nats, func(s *setup) { s.p.Subject = strings.Repeat("a", 257) }, "subject: must be 1 to 256 bytes long"},
	{
		nats, func(s *setup) { s.p.Stream = "a.b" },
		`stream: must be 1 to 255 characters without spaces and . * > / \, is "a.b"`,
	},
	{nats, func(s *setup) { s.p.Username = "u" }, "password: is required beside username"},
	{nats, func(s *setup) { s.p.Credentials = "S3CRET" }, "credentials: must be the text of a .creds file"},
	{nats, func(s *setup) { s.p.Credentials = strings.Replace(creds, "SUA", "SAA", 1) }, "credentials: must be the text"},
	{nats, func(s *setup) { s.p.Credentials, s.p.Password = creds, "S3CRET" }, "credentials: must be absent beside usern"},
	{nats, func(s *setup) { s.OAuth2 = true }, "oauth2: must be absent: NATS uses"},
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, tt := range mistaken {
		s := right(tt.kind)
		tt.change(s)
		found, want := s.mistakes(tt.kind), strings.Split(tt.want, "\n")
		require.Len(t, found, len(want), "%s: %q", tt.want, found)
		for i := range want {
			require.True(t, strings.HasPrefix(found[i], want[i]), "%s: %s", want[i], found[i])
		}
		for _, secret := range []string{"S3C", busKey, storageKey, otherKey, "SUAAA"} {
			require.NotContains(t, strings.Join(found, "\n"), secret)
		}
	}
}
