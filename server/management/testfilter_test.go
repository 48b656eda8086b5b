package management

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/postgres"
	"postrider/server/api"
)

func TestLastEventsThatTakeTooLong(t *testing.T) {
	t.Parallel()
	for _, err := range []error{postgres.ErrTooSlow, fmt.Errorf("do the thing with secrets: %w", postgres.ErrTooSlow)} {
		var no *api.RejectionError
		require.ErrorAs(t, lastEventsRejection(err), &no)
		require.Equal(t, http.StatusServiceUnavailable, no.Status)
		require.Equal(t, "ServiceUnavailable", no.Code)
		require.NotContains(t, no.Message, "secrets")
		require.Contains(t, no.Message, "bring one in event", "trying again does not help")
	}
	require.NoError(t, lastEventsRejection(nil))
}
