package management

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/catalog"
	"postrider/event"
	"postrider/policy"
	"postrider/policy/filter"
)

// The cases of RFC 7396, appendix A, and numbers that no float can hold.
func TestMerge(t *testing.T) {
	t.Parallel()
	for _, row := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"a":12345678901234567890.50,"b":"<&>"}`, `{"c":1e999}`, `{"a":12345678901234567890.50,"b":"<&>","c":1e999}`},
	} {
		merged, err := merge(json.RawMessage(row[0]), json.RawMessage(row[1]))
		require.NoError(t, err, row)
		var got, want any
		decode := func(text []byte, v *any) {
			d := json.NewDecoder(bytes.NewReader(text))
			d.UseNumber()
			require.NoError(t, d.Decode(v), string(text))
		}
		decode(merged, &got)
		decode([]byte(row[2]), &want)
		require.Equal(t, want, got, row)
	}
}

// A setting that statedSettings forgets would be lost by every patch.
func TestStatedSettingsAreComplete(t *testing.T) {
	t.Parallel()
	action, at := policy.ProbationDocumented, time.Date(2099, 1, 2, 3, 4, 5, 6000, time.UTC)
	stated := statedSettings(&catalog.SubscriptionSpec{
		EndpointURL: "https://example.com/?code=x", EndpointKind: policy.KindWebhook, EventDeliverySchema: event.EventGrid,
		RetryPolicy:         policy.DefaultName,
		MaxDeliveryAttempts: new(3), EventTimeToLiveInMinutes: new(5), DeadLetter: catalog.DeadLetterBlob,
		DeadLetterProperties: &policy.DeadLetterProperties{URL: "file:///d", Prefix: "p"},
		Filter: filter.Filter{
			IncludedEventTypes: []string{"a"}, SubjectBeginsWith: "b", SubjectEndsWith: "c", IsSubjectCaseSensitive: true,
			AdvancedFilters:                 []filter.AdvancedFilter{{OperatorType: "IsNotNull", Key: "id"}},
			EnableAdvancedFilteringOnArrays: true,
		},
		MaxEventsPerBatch: new(2), PreferredBatchSizeInKilobytes: new(7), MaxConcurrentDeliveries: new(9),
		Behavior: policy.BehaviorDocumented, HonorRetryAfter: new(false), ProbationAction: &action,
		RetryTransportErrors: new(true),
		Labels:               []string{"l"}, ExpirationTimeUTC: &at, Signed: true,
		DeliveryAttributes: []policy.DeliveryAttribute{
			{Name: "X-A", Type: policy.AttributeStatic, AttributeProperties: policy.AttributeProperties{Value: new("secret"), IsSecret: true}, },
			{Name: "X-B", Type: policy.AttributeDynamic, AttributeProperties: policy.AttributeProperties{SourceField: "data.a"}},
		},
		Connection: policy.Connection{
			MinimumTLSVersion: policy.TLS13, CertificateAuthorities: "ca", ClientCertificate: &policy.ClientCertificate{
				Certificate: "c", PrivateKey: "k",
			},
			OAuth2: &policy.OAuth2{TokenURL: "https://login.example.com", ClientID: "i", ClientSecret: "s", Scope: "o"},
		},
	})
	// Of two names of one limit the other one is stated; another kind of dead-letter destination has these members.
	requireStated(t, reflect.ValueOf(*stated), "", "RetryPolicy.MaxDeliveryCount", "RetryPolicy.EventTimeToLive",
		"DeadLetterDestination.Properties.ResourceId",
		"DeadLetterDestination.Properties.BlobContainerName")
	require.Equal(t, "2099-01-02T03:04:05.000006Z", *stated.ExpirationTimeUtc)
	require.Equal(t, "https://example.com/?code=x", stated.EndpointUrl)
	text, err := json.Marshal(stated.DeliveryAttributeMappings)
	require.NoError(t, err)
	require.JSONEq(t,
		`[{"name":"X-A","type":"Static","properties":{"value":"secret","isSecret":true}},{"name":"X-B","type":"Dynamic",`+
			`"properties":{"sourceField":"data.a"}}]`, string(text))
}

func requireStated(t *testing.T, v reflect.Value, path string, but ...string) {
	t.Helper()
	for i := range v.NumField() {
		name, field := path+v.Type().Field(i).Name, v.Field(i)
		if slices.Contains(but, name) {
			continue
		}
		require.False(t, field.IsZero(), "%s is not stated", name)
		if field.Kind() == reflect.Pointer && field.Elem().Kind() == reflect.Struct {
			requireStated(t, field.Elem(), name+".", but...)
		}
	}
}

// FuzzMerge: a patch of JSON makes JSON, and made twice it makes the same.
func FuzzMerge(f *testing.F) {
	f.Add(`{"a":{"b":1}}`, `{"a":{"b":null,"c":[1]}}`)
	f.Add(`[]`, `{"a":null}`)
	f.Add(`{"a":1}`, `1e999`)
	f.Fuzz(func(t *testing.T, target, patch string) {
		if !json.Valid([]byte(target)) || !json.Valid([]byte(patch)) {
			return
		}
		once, err := merge(json.RawMessage(target), json.RawMessage(patch))
		require.NoError(t, err)
		require.True(t, json.Valid(once))
		twice, err := merge(once, json.RawMessage(patch))
		require.NoError(t, err)
		require.Equal(t, strings.TrimSpace(string(once)), strings.TrimSpace(string(twice)))
	})
}
