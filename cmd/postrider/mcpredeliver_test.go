package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// person answers the questions of an assistant.
type person struct {
	action string
	asked  atomic.Value // the last question
}

func (p *person) options() *sdk.ClientOptions {
	return &sdk.ClientOptions{ElicitationHandler: func(
		_ context.Context, r *sdk.ElicitRequest,
	) (*sdk.ElicitResult, error) {
		p.asked.Store(r.Params.Message)
		if p.action != "accept" {
			return &sdk.ElicitResult{Action: p.action}, nil
		}
		return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"confirm": true}}, nil
	}}
}

// Both ways to ask a person redeliver exactly what the dry run has frozen, once.
func TestMCPRedeliversWhatAPersonConfirms(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNode(t, db)
	var received atomic.Int64
	endpoint := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { received.Add(1) }))
	t.Cleanup(endpoint.Close)
	n.topic("orders")
	n.subscribe("orders", "billing", endpoint.URL)
	ids := db.deadLetters(5)
	env := []string{"POSTRIDER_SERVER=" + n.api, "POSTRIDER_API_KEY=" + n.apiKey("operate")}
	for i, protocol := range []string{"", "2025-11-25"} {
		anna := &person{action: "accept"}
		a := startAssistant(t, env, anna.options(), protocol, "--allow-redeliver")
		subject := fmt.Sprintf("orders/%d", i)
		dry := a.call("redeliver_dead_letters", map[string]any{"search": "subject = " + subject, "ratePerSecond": 100})
		require.Equal(t, []any{true, 1.0}, []any{dry.own["dryRun"], dry.own["count"]}, dry.text)
		require.Equal(t, []any{"orders", "billing", "MaxDeliveryAttemptsExceeded"},
			[]any{
				rows(dry.own, "groups")[0]["topic"], rows(dry.own, "groups")[0]["subscription"],
				rows(dry.own, "groups")[0]["reason"],
			})
		require.Equal(t, ids[i], rows(dry.own, "items")[0]["deadLetterId"])
		require.Equal(t, subject, rows(dry.foreign, "items")[0]["subject"])
		require.Equal(t, int64(i), received.Load(), "a dry run redelivers nothing")
		db.exec("UPDATE postrider_internal.dead_letters SET subject = $1 WHERE id = $2", subject, ids[4]) // too late

		done := a.call("redeliver_dead_letters", map[string]any{"token": dry.own["token"]})
		require.Equal(t, true, done.own["redelivered"], done.text)
		require.Regexp(t, `^Redeliver 1 dead letters as key:operate on `+n.api+`\?\n1 of orders/billing: MaxDelivery`,
			anna.asked.Load())
		operation := done.own["operation"].(map[string]any)["operationId"]
		eventually(t, "the operation has ended", func() bool {
			shown := a.call("show_operation", map[string]any{"operationId": operation})
			return shown.own["operation"].(map[string]any)["state"] == "done"
		})
		require.Contains(t, a.call("redeliver_dead_letters", map[string]any{"token": dry.own["token"]}).text,
			"the token is not valid: it works once")
		eventually(t, "the endpoint has it", func() bool { return received.Load() == int64(i+1) })
	}
	require.Equal(t, ids[:2], column(db, "SELECT dead_letter_id::text FROM postrider.dead_letters "+
		"WHERE redelivered_at IS NOT NULL ORDER BY 1"))
	none := startAssistant(t, env, nil, "", "--allow-redeliver").
		call("redeliver_dead_letters", map[string]any{"subject": "orders/0"})
	require.Contains(t, none.text, "there is nothing to redeliver")
	require.NotContains(t, none.own, "token")
}

func TestMCPRedeliversNothingWithoutAPerson(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNode(t, db, "--role", "api")
	n.topic("orders")
	n.subscribe("orders", "billing", "http://127.0.0.1:1/")
	ids := db.deadLetters(3)
	env := []string{"POSTRIDER_SERVER=" + n.api, "POSTRIDER_API_KEY=" + n.apiKey("operate")}
	var pages []string
	for _, protocol := range []string{"", "2025-11-25"} {
		for _, action := range []string{"decline", "cancel"} {
			anna := &person{action: action}
			a := startAssistant(t, env, anna.options(), protocol, "--allow-redeliver")
			dry := a.call("redeliver_dead_letters", map[string]any{"deadLetterIds": ids[:2]})
			require.Equal(t, 2.0, dry.own["count"])
			refused := a.call("redeliver_dead_letters", map[string]any{"token": dry.own["token"]})
			require.Equal(t, false, refused.own["redelivered"])
			require.NotEmpty(t, anna.asked.Load())
		}
		a := startAssistant(t, env, nil, protocol, "--allow-redeliver")
		dry := a.call("redeliver_dead_letters", map[string]any{"all": true})
		page := a.call("redeliver_dead_letters", map[string]any{"token": dry.own["token"]})
		require.Equal(t, []any{false, fmt.Sprintf("%s/ui/selections/%s", n.api, dry.own["selectionId"])},
			[]any{page.own["redelivered"], page.own["page"]})
		require.Contains(t, page.own["next"], "A person with the rights of key:operate")
		pages = append(pages, page.own["page"].(string))
	}
	_, session := n.people(t)
	status, shown, err := call(t.Context(), http.MethodGet, pages[0], "", "Cookie", "__Host-postrider="+session)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, shown)
	require.Contains(t, shown, ids[0])
	require.Zero(t, one[int](db, "SELECT count(*) FROM postrider.operations"))

	reader := []string{"POSTRIDER_SERVER=" + n.api, "POSTRIDER_API_KEY=" + n.apiKey("read")}
	rejected := startAssistant(t, reader, nil, "", "--allow-redeliver").
		call("redeliver_dead_letters", map[string]any{"all": true})
	require.True(t, rejected.failed)
	require.Contains(t, rejected.text, "operator")
}

// column reads the rows of one column.
func column(d *database, query string) (values []string) {
	d.t.Helper()
	found, err := d.pool.Query(d.t.Context(), query)
	require.NoError(d.t, err)
	values, err = pgx.CollectRows(found, pgx.RowTo[string])
	require.NoError(d.t, err)
	return values
}
