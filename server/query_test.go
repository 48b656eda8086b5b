package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUnknownQueryParameters sends a parameter that no operation has to every operation under /v1.
func TestUnknownQueryParameters(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	const unknown = " is not a query parameter of this operation"
	for path, message := range map[string]string{
		"/v1/deadLetters?frm=1": "frm" + unknown +
			" (did you mean deadLetteredFrom?); its parameters are: cursor, deadLetteredFrom, ",
		"/v1/deadLetters?Topic=orders": "Topic" + unknown +
			" (did you mean topic?); its parameters are: cursor, deadLetteredFrom, ",
		"/v1/topics?limt=1&limit=1":      "limt" + unknown + " (did you mean limit?); its parameters are: cursor, limit",
		"/v1/topics?zzz":                 "zzz" + unknown + "; its parameters are: cursor, limit",
		"/v1/topics/orders?dry-run=true": "dry-run" + unknown + ", which has none",
		"/v1/topics?limit=%zz": "the query string is malformed: separate parameters with &, " +
			"and percent-encode their values",
	} {
		rejected := s.get(path).rejected(400, "InvalidRequest").Message
		require.Contains(t, rejected, message, path)
	}
	for _, op := range operations(t) {
		if !strings.HasPrefix(op.path, "/v1/") {
			continue
		}
		var body string
		if op.RequestBody != nil {
			body = requests(t, op)[0].body
		}
		path := op.path + "?zzz=1"
		require.Contains(t, s.manage(op.method, path, body).rejected(400, "InvalidRequest").Message, "zzz", op.OperationID)
	}
	events := `[{"id":"1","subject":"s","eventType":"t","eventTime":"2026-11-20T09:30:00Z","dataVersion":"1","data":{}}]`
	published := s.send(http.MethodPost, "/topics/orders/api/events?api-version=2018-01-01&code=x", events,
		"aeg-sas-key", key, "Content-Type", "application/json")
	require.Equal(t, http.StatusOK, published.status, "publishing tolerates other parameters, as Event Grid does")
}
