package destination_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/destination"
)

// Every type has words, and its targets show as much of them as their scheme has.
func TestWords(t *testing.T) {
	t.Parallel()
	for _, name := range destination.Types() {
		d := destination.Destination{EndpointType: destination.Type(name), Properties: &destination.Properties{
			Endpoint: "https://shop.example.com", EntityName: "orders", QueueName: "orders",
		}}
		require.NotEmpty(t, d.Type().Words(), name)
		words := destination.TargetWords(d.Target())
		require.Equal(t, d.IsWebHook(), words == "", name)
		require.True(t, strings.HasPrefix(d.Type().Words(), words), name)
	}
	require.Empty(t, destination.TargetWords("https://example.com/kafka"))
}
