package cli_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The API's messages may change: hints follow its codes and targets.
func TestHintsFollowCodes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, body string
		status     int
		args, hint string
		hinted     bool
	}{
		{
			"redelivered", `{"error":{"code":"DeadLetterRedelivered","message":"other words","details":[]}}`,
			http.StatusConflict, "deadletter redeliver 0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60", "--again", true,
		},
		{
			"exporting", `{"error":{"code":"DeadLetterExporting","message":"was redelivered already","details":[]}}`,
			http.StatusConflict, "deadletter redeliver 0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60", "--again", false,
		},
		{
			"address", `{"error":{"code":"InvalidRequest","message":"other words","details":[` +
				`{"code":"InvalidValue","target":"endpointUrl","message":"other words"}]}}`,
			http.StatusBadRequest, "listen --listen 127.0.0.1:0 --topic orders", "--allow-cidr", true,
		},
		{
			"policy", `{"error":{"code":"InvalidRequest","message":"endpointUrl must not","details":[` +
				`{"code":"InvalidValue","target":"retryPolicy","message":"endpointUrl must not"}]}}`,
			http.StatusBadRequest, "listen --listen 127.0.0.1:0 --topic orders", "--allow-cidr", false,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(row.status)
				_, _ = w.Write([]byte(row.body))
			}))
			t.Cleanup(api.Close)
			r := postrider(t, append(strings.Fields(row.args), "--url", api.URL)...)
			require.Equal(t, 1, r.code, r.stderr)
			require.Equal(t, row.hinted, strings.Contains(r.stderr, row.hint), r.stderr)
		})
	}
}
