package v1_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	v1 "postrider/server/v1"
)

// FuzzSettings: any body of a topic, an event subscription or a retry policy is read, or rejected with a message.
func FuzzSettings(f *testing.F) {
	for _, text := range []string{
		`{}`, `null`, `[]`, `{"kind":"Namespace","inputSchema":"CloudEventSchemaV1_0","eventRetentionInDays":7}`,
		`{"endpointUrl":"https://example.com/","filter":{"advancedFilters":[{"operatorType":"NumberInRange","key":"data.n",` +
			`"values":[[1,2],[3,1e999]]}]},"retryPolicy":{"eventTimeToLive":"P1DT2H"}}`,
		`{"stepsInSeconds":[1,2],"jitter":0.5,"maxDeliveryAttempts":{"default":4,"most":9},"cells":[{"status":"4xx",` +
			`"action":"never"}]}`,
		`{"deliveryAttributeMappings":[{"name":"A","type":"Dynamic","properties":{"sourceField":"data.x"}}],` +
			`"clientCertificate":{"certificate":"x","privateKey":"y"}}`,
	} {
		f.Add("orders", []byte(text))
	}
	f.Fuzz(func(t *testing.T, name string, body []byte) {
		_, topic := v1.ReadTopic(name, body)
		_, policy := v1.ReadPolicy(name, body)
		for _, err := range []error{topic, policy, v1.CheckSubscription(name, body)} {
			if err != nil {
				require.NotEmpty(t, err.Error())
			}
		}
	})
}
