package mcp

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"postrider/cmd/postrider/cli/rest"
)

// workbench is a server with one selection.
type workbench struct {
	t           *testing.T
	actor       atomic.Value
	redelivered atomic.Int64
	clock       atomic.Int64 // seconds
	answer      func() (*sdk.ElicitResult, error)
	session     *sdk.ClientSession
}

func newWorkbench(t *testing.T) *workbench {
	t.Helper()
	w := &workbench{t: t, answer: func() (*sdk.ElicitResult, error) {
		return &sdk.ElicitResult{Action: "accept", Content: map[string]any{confirm: true}}, nil
	}}
	w.actor.Store("key:assistant")
	mux := http.NewServeMux()
	reply := func(pattern string, body func() string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body()) })
	}
	reply("GET /v1/me", func() string { return `{"name":"` + w.actor.Load().(string) + `"}` })
	selection := func() string { return `{"selectionId":"s-1","count":3,"groups":[],"items":[]}` }
	reply("POST /v1/selections", selection)
	reply("GET /v1/selections/s-1", selection)
	reply("POST /v1/selections/s-1/redeliver", func() string {
		w.redelivered.Add(1)
		return `{"operationId":"o-1","kind":"redeliver"}`
	})
	api := httptest.NewServer(mux)
	t.Cleanup(api.Close)

	client, err := rest.ServerFlags{Server: api.URL, APIKey: "prk_test"}.Client()
	require.NoError(t, err)
	plans := newPlans()
	plans.now = func() time.Time { return time.Unix(w.clock.Load(), 0) }
	ours, theirs := sdk.NewInMemoryTransports()
	server, err := newServer(&tools{client, plans}, true).Connect(t.Context(), theirs, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	w.session, err = sdk.NewClient(&sdk.Implementation{Name: "test"}, &sdk.ClientOptions{
		ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) { return w.answer() },
	}).Connect(t.Context(), ours, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.session.Close() })
	return w
}

// call returns the first block of the result.
func (w *workbench) call(arguments map[string]any) string {
	w.t.Helper()
	r, err := w.session.CallTool(w.t.Context(),
		&sdk.CallToolParams{Name: "redeliver_dead_letters", Arguments: arguments})
	require.NoError(w.t, err)
	return r.Content[0].(*sdk.TextContent).Text
}

// token is that of a new dry run.
func (w *workbench) token() string {
	w.t.Helper()
	_, rest, found := strings.Cut(w.call(map[string]any{"topic": "orders"}), `"token":"`)
	require.True(w.t, found)
	token, _, _ := strings.Cut(rest, `"`)
	return token
}

func TestTokensExpire(t *testing.T) {
	t.Parallel()
	w := newWorkbench(t)
	inTime, late, other := w.token(), w.token(), w.token()
	w.clock.Store(299)
	require.Contains(t, w.call(map[string]any{"token": inTime}), `"redelivered":true`)
	w.clock.Store(300)
	require.Contains(t, w.call(map[string]any{"token": late}), "begin again with a dry run")

	w.clock.Store(0)
	w.answer = func() (*sdk.ElicitResult, error) {
		w.clock.Store(300) // the person takes too long
		return &sdk.ElicitResult{Action: "accept", Content: map[string]any{confirm: true}}, nil
	}
	require.Contains(t, w.call(map[string]any{"token": other}), "begin again with a dry run")
	require.Equal(t, int64(1), w.redelivered.Load())
}

func TestTokensBelongToTheActor(t *testing.T) {
	t.Parallel()
	w := newWorkbench(t)
	token := w.token()
	w.actor.Store("key:other")
	require.Contains(t, w.call(map[string]any{"token": token}), "has changed since the dry run")
	w.actor.Store("key:assistant")
	require.Contains(t, w.call(map[string]any{"token": token}), "the token is not valid")
	require.Zero(t, w.redelivered.Load())
}

// Only the accepted form with its box checked redelivers.
func TestOnlyAPersonConfirms(t *testing.T) {
	t.Parallel()
	w := newWorkbench(t)
	for _, answer := range []sdk.ElicitResult{
		{Action: "decline"},
		{Action: "cancel"},
		{Action: "accept"},
		{Action: "accept", Content: map[string]any{confirm: false}},
		{Action: "decline", Content: map[string]any{confirm: true}},
	} {
		w.answer = func() (*sdk.ElicitResult, error) { return &answer, nil }
		token := w.token()
		require.Contains(t, w.call(map[string]any{"token": token}), "The person did not confirm", answer)
		require.Contains(t, w.call(map[string]any{"token": token}), "the token is not valid", answer)
	}
	// A response without a question, or one to another question.
	for _, state := range []string{"", "guess", w.token()} {
		r, err := w.session.CallTool(t.Context(), &sdk.CallToolParams{
			Name: "redeliver_dead_letters", Arguments: map[string]any{"token": "guess"}, RequestState: state,
			InputResponses: sdk.InputResponseMap{
				confirm: &sdk.ElicitResult{Action: "accept", Content: map[string]any{confirm: true}},
			},
		})
		require.NoError(t, err)
		require.True(t, r.IsError)
	}
	require.Zero(t, w.redelivered.Load())
}

func TestRedeliveryChecksItsInput(t *testing.T) {
	t.Parallel()
	w := newWorkbench(t)
	for message, arguments := range map[string]map[string]any{
		"choose dead letters":                   {},
		"must not be combined":                  {"deadLetterIds": []string{"a"}, "all": true},
		"toTopic: requires toSubscription":      {"all": true, "toTopic": "orders"},
		"token: must be the only parameter":     {"token": w.token(), "topic": "orders"},
		"the token is not valid: it works once": {"token": "guess"},
	} {
		require.Contains(t, w.call(arguments), message)
	}
}
