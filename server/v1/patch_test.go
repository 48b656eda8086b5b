package v1

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/filter"
)

// A patch changes only its own settings: no default becomes a setting, and numbers keep their digits.
func TestPatched(t *testing.T) {
	t.Parallel()
	stored := catalog.SubscriptionSpec{
		EndpointURL: "https://example.com/?code=x&y=<&>",
		Filter: filter.Filter{AdvancedFilters: []filter.AdvancedFilter{
			{
				OperatorType: "NumberIn", Key: "data.n",
				Values: []json.RawMessage{[]byte("12345678901234567890.50"), []byte("1e3")},
			},
		}},
		DeliveryAttributes: []endpointconf.DeliveryAttribute{{
			Name: "X-Key", Type: endpointconf.AttributeStatic,
			AttributeProperties: endpointconf.AttributeProperties{Value: new("secret"), IsSecret: true},
		}},
		Connection: endpointconf.Connection{OAuth2: &endpointconf.OAuth2{
			TokenURL: "https://a", ClientID: "i",
			ClientSecret: "s",
		}},
	}
	after, err := patched(stored, json.RawMessage(`{}`))
	require.NoError(t, err)
	require.Equal(t, stored, after)
	after, err = patched(stored, json.RawMessage(`{"labels":["a"]}`))
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, after.Labels)
	after.Labels = nil
	require.Equal(t, stored, after, "no secret is lost, and no default is stored")

	after, err = patched(stored, json.RawMessage(`{"oauth2":{"tokenUrl":"https://b"}}`))
	require.NoError(t, err)
	require.Empty(t, after.OAuth2.ClientSecret, "a secret is not sent to another address")
	require.Equal(t, "s", stored.OAuth2.ClientSecret)
}
