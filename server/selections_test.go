package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/query"
)

// selected creates a selection and returns its id.
func (b *bundle) selected(body string) string {
	b.t.Helper()
	response := b.manage(http.MethodPost, "/v1/selections", body)
	require.Equal(b.t, http.StatusCreated, response.status, response.body)
	return response.value().(map[string]any)["selectionId"].(string)
}

// A preview shows what an operation would skip or fail, and the export has all that can be exported.
func TestSelectionPreview(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	b.subscription("orders", "billing", `{"endpointUrl":"https://example.com/hook"}`)
	ids := b.deadLettersOf("orders", "billing", 60)
	at := "/v1/selections/" + b.selected(`{"filter":{"topic":"orders"}}`)
	b.change("UPDATE postrider_internal.dead_letters SET redelivered_at = now() WHERE id = $1", ids[0])
	b.change("DELETE FROM postrider_internal.dead_letters WHERE id = $1", ids[1])
	preview := b.manage(http.MethodGet, at, "").value().(map[string]any)
	require.InDelta(t, 60, preview["count"], 0)
	require.Len(t, preview["items"], 50)
	first := preview["items"].([]any)[0].(map[string]any)
	require.Equal(t, ids[0], first["deadLetterId"])
	require.Equal(t, "it was redelivered before", first["message"])
	require.Equal(t, "orders/a b&0", first["subject"])
	var groups []string
	for _, g := range preview["groups"].([]any) {
		group := g.(map[string]any)
		groups = append(groups, fmt.Sprintf("%v %v %v %v %v", group["count"], group["topic"], group["subscription"],
			group["reason"], group["result"]))
	}
	require.ElementsMatch(t, []string{
		"58 orders billing MaxDeliveryAttemptsExceeded <nil>",
		"1 orders billing MaxDeliveryAttemptsExceeded redelivered", "1 <nil> <nil> <nil> missing",
	}, groups)

	var exported []string
	for link := at + "/export?format=rows&limit=7"; link != ""; {
		page := b.manage(http.MethodGet, link, "").value().(map[string]any)
		for _, l := range page["value"].([]any) {
			exported = append(exported, l.(map[string]any)["dead_letter_id"].(string))
		}
		link, _ = page["nextLink"].(string)
	}
	require.Equal(t, append(ids[:1:1], ids[2:]...), exported)
}

func TestSelectionOfDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.topic("orders", "")
	b.subscription("orders", "billing", `{"endpointUrl":"https://example.com/hook"}`)
	b.subscription("orders", "audit", `{"endpointUrl":"https://example.com/hook"}`)
	for _, id := range []string{"1", "2", "3"} {
		require.Equal(t, http.StatusOK, b.publish("orders", key, "["+gridEvent(id)+"]").status)
	}
	require.Equal(t, http.StatusOK, b.manage(http.MethodPost, "/v1/topics/orders/subscriptions/billing/pause", "").status)
	for body, count := range map[string]int{
		`{"deliveryFilter":{}}`: 6, `{"deliveryFilter":{"topic":"orders","subscription":"audit"}}`: 3,
		`{"deliveryFilter":{"state":"delivered"}}`: 0, `{"deliveryIds":[1,2,2]}`: 2,
		`{"deliveryFilter":{"publishedFrom":"2024-01-01T00:00:00Z","state":"pending"}}`: 6,
	} {
		response := b.manage(http.MethodGet, "/v1/selections/"+b.selected(body), "").value().(map[string]any)
		require.InDelta(t, count, response["count"], 0, body)
		require.Len(t, response["items"], count, body)
	}
	at := "/v1/selections/" + b.selected(`{"deliveryFilter":{"subscription":"billing"}}`)
	require.Equal(t, http.StatusAccepted, b.manage(http.MethodPost, at+"/cancel", `{"ratePerSecond":2}`).status)
	b.manage(http.MethodPost, at+"/purge", "").rejected(400, "InvalidRequest")
	b.manage(http.MethodGet, at+"/export", "").rejected(400, "InvalidRequest")
}

func TestSelectionRejections(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for body, message := range map[string]string{
		``:   "give one of deadLetterIds, deliveryIds, filter, deliveryFilter and sql",
		`{}`: "give one of", `{"filter":{},"deliveryIds":[1]}`: "give one of",
		`{"deadLetterIds":["x"]}`: "deadLetterIds[0] must be a UUID", `{"filter":{"topik":"x"}}`: "filter.topik",
		`{"deliveryFilter":{"state":"gone"}}`: "must be one of", `{"deliveryFilter":{"topic":"\u0000"}}`: "must be UTF-8",
	} {
		response := b.manage(http.MethodPost, "/v1/selections", body)
		response.rejected(400, "InvalidRequest")
		require.Contains(t, response.body, message, body)
	}
	const unknown = "/v1/selections/00000000-0000-0000-0000-000000000000"
	for method, path := range map[string]string{"GET": unknown, "POST": unknown + "/redeliver"} {
		response := b.manage(method, path, "")
		response.rejected(404, "NotFound")
		require.Contains(t, response.body, "does not exist, has expired or belongs to another user")
	}
	b.manage(http.MethodGet, "/v1/operations/"+exampleOperation+"/results", "").rejected(404, "NotFound")
}

// A list of ids may be larger than other bodies.
func TestSelectionOfManyIDs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := make([]string, query.GroupSample+1)
	for i := range ids {
		ids[i] = `"` + uuid.NewString() + `"`
	}
	body := `{"deadLetterIds":[` + strings.Join(ids, ",") + `]}`
	response := b.manage(http.MethodPost, "/v1/selections", body)
	require.Equal(t, http.StatusCreated, response.status, response.body)
	made := response.json(http.StatusCreated)
	require.InDelta(t, len(ids), made["count"], 0)
	preview := b.manage(http.MethodGet, "/v1/selections/"+made["selectionId"].(string), "").json(http.StatusOK)
	require.InDelta(t, query.GroupSample, preview["grouped"], 0)
	require.InDelta(t, query.GroupSample, preview["groups"].([]any)[0].(map[string]any)["count"], 0)
	b.manage(http.MethodPost, "/v1/selections", strings.Repeat(" ", 40<<20)+body).rejected(413, "PayloadTooLarge")
	b.manage(http.MethodPost, "/v1/deadLetters/redeliver", body).rejected(413, "PayloadTooLarge")
}

// A query's result becomes a selection for those who may query.
func TestSelectionOfAQuery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.queryLogins()
	b.topic("orders", "")
	b.subscription("orders", "billing", `{"endpointUrl":"https://example.com/hook"}`)
	b.deadLettersOf("orders", "billing", 3)
	const body = `{"sql":"select dead_letter_id from postrider.dead_letters where event_id <> $1","args":["e-1"]}`
	response := b.manage(http.MethodGet, "/v1/selections/"+b.selected(body), "").value().(map[string]any)
	require.InDelta(t, 2, response["count"], 0)
	response400 := b.manage(http.MethodPost, "/v1/selections", `{"sql":"select 1 as n"}`)
	require.Equal(t, http.StatusBadRequest, response400.status, response400.body)
	require.Contains(t, response400.body, "no column dead_letter_id or delivery_id")
	for flag, status := range map[string]int{"true": http.StatusCreated, "false": http.StatusForbidden} {
		key := b.queryKey("key-"+flag, "operate", flag)
		response := b.send(http.MethodPost, "/v1/selections", body, "Authorization", key)
		require.Equal(t, status, response.status, response.body)
	}
}
