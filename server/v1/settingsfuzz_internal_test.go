package v1

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/policy"
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
		p := &plan{
			m: &Handlers{declaredPolicies: map[string]*policy.Policy{}}, uses: map[string]bool{},
			topics: map[string]*catalog.Topic{},
		}
		list := []json.RawMessage{body}
		p.read(&Configuration{Policies: list, Topics: list, Subscriptions: list})
		_, err := ReadPolicy(name, body)
		for _, o := range p.objects {
			if o.err != nil {
				require.NotEmpty(t, o.err.Error())
			}
		}
		if err != nil {
			require.NotEmpty(t, err.Error())
		}
	})
}
