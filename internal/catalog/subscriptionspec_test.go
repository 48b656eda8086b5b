package catalog

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog/spec"
	"postrider/internal/destination"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/filter"
	"postrider/internal/message"
	"postrider/internal/postgres"
	"postrider/policy"
)

func fullDestination() *DeadLetterDestination {
	return &DeadLetterDestination{
		EndpointType: DeadLetterBlob,
		Properties: &endpointconf.DeadLetterProperties{
			URL: "file:///d", Prefix: "p", ResourceID: "r", BlobContainerName: "c",
		},
	}
}

// fullSpec has a value for every setting.
func fullSpec() SubscriptionSpec {
	action, at := policy.ProbationDocumented, time.Date(2099, 1, 2, 3, 4, 5, 6000, time.UTC)
	return SubscriptionSpec{
		DeliveryConfiguration: &DeliveryConfiguration{
			DeliveryMode: ModeQueue, Queue: &QueueSettings{
				ReceiveLockDurationInSeconds: new(90), MaxDeliveryCount: new(3), EventTimeToLive: new("PT5M"),
				DeadLetterDestination: fullDestination(),
				DeadLetterWithIdentity: &IdentityDestination{
					DeadLetterDestination: fullDestination(), Identity: json.RawMessage(`{"type":"SystemAssigned"}`),
				},
			},
		},
		Destination: &destination.Destination{EndpointType: destination.Kafka, Properties: &destination.Properties{
			ResourceID: "r", Endpoint: "e", EntityName: "n", QueueName: "q", QueueMessageTimeToLiveInSeconds: new(3),
			SharedAccessKeyName: "k", PrimaryKey: "planted", SecondaryKey: "planted", SharedAccessSignature: "planted",
			ConnectionString: "planted", Servers: []string{"s"}, TLS: new(true), Topic: "t", ContentMode: destination.Binary,
			MessageKey: destination.KeyID, SASLMechanism: destination.SASLPlain, Subject: "u", Stream: "m", Username: "n",
			Password: "planted", Credentials: "planted", MaxMessageSizeInKilobytes: new(5),
		}},
		EndpointURL: "https://example.com/?code=planted", EndpointKind: policy.KindWebhook,
		EventDeliverySchema: event.EventGrid, EndpointValidation: ValidationRequired,
		RetryPolicy: RetryPolicySpec{
			Policy: policy.DefaultName, MaxDeliveryAttempts: new(3), EventTimeToLiveInMinutes: new(5), MaxDeliveryCount: new(3),
			EventTimeToLive: new("PT5M"),
		},
		DeadLetterDestination: fullDestination(),
		Filter: filter.Filter{
			IncludedEventTypes: []string{"a"}, SubjectBeginsWith: "<b>", SubjectEndsWith: "c", IsSubjectCaseSensitive: true,
			AdvancedFilters: []filter.AdvancedFilter{
				{OperatorType: "NumberIn", Key: "data.n", Values: []json.RawMessage{
					[]byte("12345678901234567890.50"), []byte("1e3"),
				}},
			},
			EnableAdvancedFilteringOnArrays: true,
		},
		MaxEventsPerBatch: new(2), PreferredBatchSizeInKilobytes: new(7), MaxConcurrentDeliveries: new(9),
		DeliveryRate: &endpointconf.DeliveryRate{
			Limit: 5, PeriodInSeconds: new(60), Burst: new(2), Scope: endpointconf.RatePerEndpoint,
			Count: endpointconf.RateOfEvents,
		},
		ResponseTimeoutInSeconds: new(12),
		Behavior:                 policy.BehaviorDocumented, HonorRetryAfter: new(false), ProbationAction: &action,
		RetryTransportErrors: new(true), Description: new("d"), Labels: []string{"l"}, ExpirationTimeUTC: &at,
		Signing:       SigningSpec{Enabled: true, Secret: "planted"},
		MessageFormat: message.PagerDuty, PagerDutyRoutingKey: "planted",
		DeliveryAttributes: []endpointconf.DeliveryAttribute{
			{
				Name: "X-A", Type: endpointconf.AttributeStatic,
				AttributeProperties: endpointconf.AttributeProperties{Value: new("planted"), IsSecret: true},
			},
			{
				Name: "X-B", Type: endpointconf.AttributeDynamic,
				AttributeProperties: endpointconf.AttributeProperties{SourceField: "data.a"},
			},
		},
		Connection: endpointconf.Connection{
			MinimumTLSVersion: endpointconf.TLS13, CertificateAuthorities: "ca",
			ClientCertificate: &endpointconf.ClientCertificate{Certificate: "c", PrivateKey: "planted"},
			OAuth2: &endpointconf.OAuth2{
				TokenURL: "https://login.example.com", ClientID: "i", ClientSecret: "planted", Scope: "o",
			},
		},
	}
}

// The table of settings and the struct name the same settings. A setting that is in one of them only could not be set,
// or would be described nowhere.
func TestSettingsAreDeclaredOnce(t *testing.T) {
	t.Parallel()
	full := fullSpec()
	requireNoZero(t, reflect.ValueOf(full), "SubscriptionSpec")
	text, err := json.Marshal(full)
	require.NoError(t, err)
	for _, s := range spec.Subscription {
		require.NotNil(t, spec.At(text, s.Name), "%s is in the table and not in the struct", s.Name)
	}
	var walk func(path string, object []byte)
	walk = func(path string, object []byte) {
		var members map[string]json.RawMessage
		if spec.Find(spec.Subscription, path) != nil {
			return
		}
		require.NoError(t, json.Unmarshal(object, &members), "%s is in the struct and not in the table", path)
		for name, value := range members {
			if path != "" {
				name = path + "." + name
			}
			walk(name, value)
		}
	}
	walk("", text)
}

func requireNoZero(t *testing.T, v reflect.Value, path string) {
	t.Helper()
	for i := range v.NumField() {
		field, name := v.Field(i), path+"."+v.Type().Field(i).Name
		require.False(t, field.IsZero(), "%s has no value here", name)
		if field.Kind() == reflect.Pointer {
			field = field.Elem()
		}
		if field.Kind() == reflect.Struct && field.Type() != reflect.TypeFor[time.Time]() {
			requireNoZero(t, field, name)
		}
	}
}

// What is stored contains no secret, and both parts together are what was stored.
func TestSpecIsStoredWithSealedSecrets(t *testing.T) {
	t.Parallel()
	sealer, err := postgres.NewSealer([]byte("0123456789abcdef0123456789abcdef"))
	require.NoError(t, err)
	r := records{sealer: sealer}
	settings, sealed, err := r.sealSpec(secretsColumn, fullSpec())
	require.NoError(t, err)
	require.NotContains(t, string(settings)+string(sealed), "planted")
	require.NotContains(t, string(settings), "example.com/?",
		"the endpoint's query is a secret, and its host is sealed with it")
	read, err := r.openSpec(secretsColumn, settings, sealed)
	require.NoError(t, err)
	want := fullSpec()
	want.Signing.Secret = ""
	require.Equal(t, want, read)
}
