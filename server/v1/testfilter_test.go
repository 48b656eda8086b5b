package v1

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/server/api"
)

func TestLastEventsThatTakeTooLong(t *testing.T) {
	t.Parallel()
	for _, err := range []error{postgres.ErrTooSlow, fmt.Errorf("an operation with secrets: %w", postgres.ErrTooSlow)} {
		var rejected *api.RejectionError
		require.ErrorAs(t, lastEventsError(err), &rejected)
		require.Equal(t, http.StatusServiceUnavailable, rejected.Status)
		require.Equal(t, "ServiceUnavailable", rejected.Code)
		require.NotContains(t, rejected.Message, "secrets")
		require.Contains(t, rejected.Message, "send one in event", "a retry does not help")
	}
	require.NoError(t, lastEventsError(nil))
}
