package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/server"
	v1 "postrider/server/v1"
)

// setupEngine is a server with an engine that makes handshakes without delays, and topic orders.
func setupEngine(t *testing.T, change ...func(*server.Options)) *service {
	t.Helper()
	s := (&service{t: t}).node(testdb.New(t), 20, append([]func(*server.Options){func(o *server.Options) {
		o.AllowCIDR, o.DefaultValidation, o.ValidationWait = testnode.Loopback, nil, time.Minute
	}}, change...)...)
	s.tn.Start(t, func(o *jobs.Options) { o.HandshakePause = time.Millisecond })
	s.topic("orders", "")
	return s
}

// endpoint serves until the test ends.
func endpoint(t *testing.T, response http.HandlerFunc) string {
	t.Helper()
	e := httptest.NewServer(response)
	t.Cleanup(e.Close)
	return e.URL
}

// respondWithCode responds to validation events with their code, and to other requests with 200.
func respondWithCode(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var events []struct {
		Data struct{ ValidationCode string }
	}
	if json.Unmarshal(body, &events) == nil && r.Header.Get("Aeg-Event-Type") == "SubscriptionValidation" {
		_, _ = fmt.Fprintf(w, `{"validationResponse":%q}`, events[0].Data.ValidationCode)
	}
}

func responses(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

func to(endpoint string) string { return fmt.Sprintf(`{"endpointUrl":%q}`, endpoint) }

// jobs has the handshakes and their results.
func TestEndpointIsValidatedBeforeTheResponse(t *testing.T) {
	t.Parallel()
	s := setupEngine(t)
	e := endpoint(t, respondWithCode)
	made := s.put(billing, to(e+"?secret=1")).json(201)
	require.Equal(t, []any{"Succeeded", "required", nil},
		[]any{made["provisioningState"], made["endpointValidation"], made["hold"]})
	validation := made["validation"].(map[string]any)
	require.Equal(t, []any{"succeeded", nil}, []any{validation["state"], validation["validationUrl"]})
	require.NotNil(t, validation["concludedAt"])
	steps := validation["steps"].([]any)
	require.Len(t, steps, 1)
	step := steps[0].(map[string]any)
	require.Equal(t, []any{200.0, "validated: responded 200 with the code"}, []any{step["status"], step["verdict"]})
	require.Equal(t, validation, s.get(billing).json(200)["validation"])
	s.put(billing, fmt.Sprintf(`{"endpointUrl":%q,"maxEventsPerBatch":5}`, e+"?secret=1")).json(200)
	require.Equal(t, 1, s.count("SELECT count(*) FROM postrider.handshakes"), "the endpoint is the same")
}

func TestEndpointThatFailsThreeTimesIsRejected(t *testing.T) {
	t.Parallel()
	s := setupEngine(t)
	bad := endpoint(t, responses(http.StatusInternalServerError))
	rejection := s.put(billing, to(bad+"/in?secret=1")).rejected(400, "EndpointValidationFailed")
	require.Equal(t, "The attempt to validate the provided endpoint "+bad+
		"/in failed. Try 3 of 3: responded 500, and only 200 with the code counts. "+
		"Let the endpoint respond to the handshake, or set endpointValidation to skip.", rejection.Message)
	require.Equal(t, []string{"endpointUrl", "endpointUrl", "endpointUrl"}, targets(rejection))
	s.get(billing).rejected(404, "NotFound")
	require.Equal(t, 1,
		s.count("SELECT count(*) FROM postrider.handshakes WHERE state = 'failed' AND tries = 3 AND NOT current"))

	s.put(billing, to(endpoint(t, respondWithCode))).json(201)
	before := s.get(billing).json(200)
	s.put(billing, to(bad)).rejected(400, "EndpointValidationFailed")
	require.Equal(t, before, s.get(billing).json(200), "the old one goes on untouched")
	skipped := s.put(billing, fmt.Sprintf(`{"endpointUrl":%q,"endpointValidation":"skip"}`, bad)).json(200)
	require.Equal(t, []any{"Succeeded", nil}, []any{skipped["provisioningState"], skipped["validation"]})
	// not skipped any more
	s.put(billing, to(bad)).rejected(400, "EndpointValidationFailed")
}

func TestValidationURL(t *testing.T) {
	t.Parallel()
	s := setupEngine(t)
	viewer := s.apiKey("viewer", "read", "")
	e := endpoint(t, responses(http.StatusOK))
	open := func(method, link string) response { return s.send(method, strings.TrimPrefix(link, s.url), "") }
	s.audited()
	made := s.put(billing, to(e)).json(201)
	require.Contains(t, s.audited()[0], `{"endpointValidation":"required","settings":[`)
	require.Equal(t, "AwaitingManualAction", made["provisioningState"])
	require.Equal(t, "not_validated", made["hold"].(map[string]any)["reason"])
	validation := made["validation"].(map[string]any)
	require.Equal(t, "awaiting", validation["state"])
	require.Contains(t, validation["message"], "open validationUrl within 10 minutes, or set endpointValidation to skip")
	link := validation["validationUrl"].(string)
	require.True(t, strings.HasPrefix(link, s.url+"/topics/orders/eventsubscriptions/billing/validate?id="), link)
	viewed := s.send(http.MethodGet, billing, "", "Authorization", "Bearer "+viewer).
		json(200)["validation"].(map[string]any)
	require.Nil(t, viewed["validationUrl"], "it validates the endpoint")
	require.NotNil(t, viewed["expiresAt"])
	require.Equal(t, validation["expiresAt"], viewed["expiresAt"])

	s.post(billing+"/release", "").rejected(409, "EndpointNotValidated")
	s.post(billing+"/probe", "").rejected(409, "EndpointNotValidated")
	open(http.MethodGet, link+"x").rejected(404, "NotFound")
	open(http.MethodGet, link+"%00").rejected(404, "NotFound")
	open(http.MethodGet, strings.Replace(link, "billing", "other", 1)).rejected(404, "NotFound")
	open(http.MethodGet, strings.Split(link, "?")[0]).rejected(400, "InvalidRequest")
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		require.Equal(t, "Webhook successfully validated as a subscription endpoint.", open(method, link).is(200).body)
	}
	require.Equal(t, []string{"subscription_validated orders/billing {}"}, s.auditedBy("validationUrl"))
	shown := s.get(billing).json(200)
	require.Equal(t, []any{"Succeeded", nil}, []any{shown["provisioningState"], shown["hold"]})
	require.Nil(t, shown["validation"].(map[string]any)["validationUrl"])
	s.post(billing+"/validate", "").json(200)
	require.Equal(t, []string{"subscription_validation_requested orders/billing {}"}, s.audited())

	late := s.put("/v1/topics/orders/subscriptions/late", to(e)).json(201)["validation"].(map[string]any)
	s.tn.Exec(t, "UPDATE postrider_internal.handshakes SET callback_expires_at = now() WHERE state = 'awaiting'")
	open(http.MethodGet, late["validationUrl"].(string)).rejected(400, "ValidationOver")
}

// Skipping the validation of an endpoint on this machine does not skip that of others.
func TestEndpointValidationSetting(t *testing.T) {
	t.Parallel()
	s := setup(t, func(o *server.Options) { o.DefaultValidation, o.AllowCIDR = v1.SkipLocal(nil), testnode.Loopback })
	s.topic("orders", "")
	const here = "http://127.0.0.1:9/"
	rejection := s.put(billing, `{"endpointUrl":"https://example.com","endpointValidation":"maybe"}`).
		rejected(400, "InvalidRequest")
	require.Equal(t, "endpointValidation must be required or skip", rejection.Message)
	for host, want := range map[string]catalog.EndpointValidation{
		"127.0.0.1": catalog.ValidationSkip, "::1": catalog.ValidationSkip, "localhost": catalog.ValidationSkip,
		"example.com": catalog.ValidationRequired, "127.example.a": catalog.ValidationRequired,
		"": catalog.ValidationRequired, "10.1.2.3": catalog.ValidationSkip, "::ffff:10.1.2.3": catalog.ValidationSkip,
		"192.168.1.1": catalog.ValidationRequired, "fd00::1": catalog.ValidationRequired,
		"app": catalog.ValidationSkip, "host.docker.internal": catalog.ValidationSkip,
		"internal.a": catalog.ValidationRequired,
	} {
		require.Equal(t, want, v1.SkipLocal([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})(host), host)
	}
	required := s.put(billing, `{"endpointUrl":"http://127.0.0.1:9/","endpointValidation":"required"}`).json(201)
	require.Equal(t, "Creating", required["provisioningState"])
	s.delete(billing).is(204)
	for change, status := range map[string]int{
		`{"labels":["a"]}`: 200, to(here): 200, to("http://127.0.0.1:10/"): 200,
		to("https://example.com/"): 400, // no engine calls it here
		`{"endpointUrl":"https://example.com/","endpointValidation":"skip"}`: 200,
	} {
		require.Equal(t, "skip", s.put(billing, to(here)).json(201)["endpointValidation"])
		s.patch(billing, change).is(status)
		require.Equal(t, "skip", s.get(billing).json(200)["endpointValidation"], change)
		s.delete(billing).is(204)
	}
}

// A validated endpoint is replaced only by one that has responded. A first one is stored, and its deliveries are held.
func TestSlowEndpointDoesNotReplaceAWorkingOne(t *testing.T) {
	t.Parallel()
	s := setupEngine(t, func(o *server.Options) { o.ValidationWait = 10 * time.Millisecond })
	s.put(billing, `{"endpointUrl":"http://127.0.0.1:9/","endpointValidation":"skip"}`).json(201)
	before := s.get(billing).json(200)
	response := make(chan struct{})
	e := endpoint(t, func(http.ResponseWriter, *http.Request) { <-response })
	t.Cleanup(func() { close(response) })
	for _, method := range []string{http.MethodPut, http.MethodPatch} {
		rejection := s.manage(method, billing, to(e+"/in?secret=1")).
			rejected(400, "EndpointValidationFailed")
		require.Equal(t, "The attempt to validate the provided endpoint "+e+
			"/in failed. It did not respond within 10ms, so the previous endpoint is kept. "+
			"Try again, or set endpointValidation to skip.", rejection.Message)
	}
	require.Equal(t, before, s.get(billing).json(200))

	made := s.put("/v1/topics/orders/subscriptions/first", to(e)).json(201)
	require.Equal(t, []any{"Creating", "not_validated", "pending"}, []any{
		made["provisioningState"], made["hold"].(map[string]any)["reason"],
		made["validation"].(map[string]any)["state"],
	})
}

// Each handshake may take 15 s, so a patch with concurrent changes makes two at most.
func TestPatchMakesTwoHandshakesAtMost(t *testing.T) {
	t.Parallel()
	s := setupEngine(t)
	s.put(billing, `{"endpointUrl":"http://127.0.0.1:9/","endpointValidation":"skip"}`).json(201)
	var requests atomic.Int32
	e := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		s.patch(billing, fmt.Sprintf(`{"labels":["%d"]}`, requests.Add(1))).json(200)
		respondWithCode(w, r)
	})
	s.patch(billing, to(e)).rejected(409, "ConcurrentChange")
	require.EqualValues(t, 2, requests.Load())
	require.Equal(t, "http://127.0.0.1:9/", s.get(billing).json(200)["endpointBaseUrl"])
}

// A change that keeps the endpoint keeps its validationUrl. A PUT with If-Match succeeds after its own handshake,
// although that changes the version. jobs.TestRepeatedHandshake has the rest.
func TestChangesKeepTheValidationURL(t *testing.T) {
	t.Parallel()
	s := setupEngine(t)
	var works atomic.Bool
	e := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		if works.Load() {
			respondWithCode(w, r)
		}
	})
	made := s.put(billing, to(e)).json(201)
	for method, body := range map[string]string{http.MethodPut: to(e), http.MethodPatch: `{"maxEventsPerBatch":5}`} {
		kept := s.manage(method, billing, body).json(200)
		require.Equal(t, "AwaitingManualAction", kept["provisioningState"], method)
		require.Equal(t, made["validation"], kept["validation"], method)
	}
	s.change("UPDATE postrider_internal.handshakes SET callback_expires_at = now()")
	require.NoError(t, s.store.Handshakes.Expire(t.Context()))
	works.Store(true)
	put := s.manage(http.MethodPut, billing, to(e), "If-Match", s.get(billing).header.Get("ETag"))
	require.Equal(t, "Succeeded", put.json(200)["provisioningState"])
}
