package auth

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
)

// Publishes with an access key or a signature need no query and no allocation for API keys.
func TestAccessKeysAreNotLookedUp(t *testing.T) { //nolint:paralleltest // it counts allocations
	s := &Authenticator{} // without access: a lookup would panic
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/topics/orders/api/events", http.NoBody)
	require.NoError(t, err)
	for header, shown := range map[string]string{"Aeg-Sas-Key": "aGVsbG8=", "Authorization": "Bearer aGVsbG8="} {
		r.Header = http.Header{header: {shown}}
		opened, topic := false, &catalog.Topic{Name: "orders"}
		allocated := testing.AllocsPerRun(100, func() {
			c, err := s.Credential(r)
			if err == nil {
				err = s.LookUp(r.Context(), &c, "orders")
			}
			opened = err != nil || c.Opens(topic)
		})
		require.Zero(t, allocated, header)
		require.False(t, opened)
	}
}
