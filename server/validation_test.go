package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/jobs"
	"postrider/server"
	v1 "postrider/server/v1"
)

// setupEngine is a server with an engine that makes handshakes without delays.
func setupEngine(t *testing.T, change ...func(*server.Options)) *service {
	t.Helper()
	local := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	s := setupWorkers(t, 20, append([]func(*server.Options){func(o *server.Options) {
		o.AllowCIDR, o.DefaultValidation, o.ValidationWait = local, nil, time.Minute
	}}, change...)...)
	engine, err := jobs.New(jobs.Options{
		Parts: s.store.Parts, Logger: slog.New(slog.DiscardHandler), AllowCIDR: local, HandshakePause: time.Millisecond,
		StopTimeout: time.Second,
	})
	require.NoError(t, err)
	require.NoError(t, engine.Start(t.Context()))
	t.Cleanup(func() { _ = engine.Stop(t.Context()) })
	return s
}

// endpoint serves until the test ends.
func endpoint(t *testing.T, response http.HandlerFunc) string {
	t.Helper()
	e := httptest.NewServer(response)
	t.Cleanup(e.Close)
	return e.URL
}

// sendsBack responds to validation events with their code, and to other requests with 200.
func sendsBack(w http.ResponseWriter, r *http.Request) {
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

func TestEndpointIsValidatedBeforeTheResponse(t *testing.T) {
	t.Parallel()
	s := setupEngine(t)
	s.topic("orders", "")
	s.topic("custom", customTopic)
	e := endpoint(t, sendsBack)

	made := s.put(billing, to(e+"?secret=1")).json(201)
	require.Equal(t, "Succeeded", made["provisioningState"])
	require.Equal(t, "required", made["endpointValidation"])
	require.Nil(t, made["hold"])
	validation := made["validation"].(map[string]any)
	require.Equal(t, "succeeded", validation["state"])
	require.Nil(t, validation["validationUrl"])
	require.NotNil(t, validation["concludedAt"])
	steps := validation["steps"].([]any)
	require.Len(t, steps, 1)
	step := steps[0].(map[string]any)
	require.Equal(t, 200.0, step["status"])
	require.Equal(t, "validated: responded 200 with the code", step["verdict"])
	require.Equal(t, validation, s.get(billing).json(200)["validation"])

	made = s.put("/v1/topics/custom/subscriptions/billing", to(e)).json(201)
	require.Equal(t, "CustomInputSchema Succeeded",
		made["eventDeliverySchema"].(string)+" "+made["provisioningState"].(string))
	require.Equal(t, 2, s.count("SELECT count(*) FROM postrider.handshakes WHERE state = 'succeeded' AND current"))

	// A change that keeps the endpoint makes no handshake.
	s.put(billing, fmt.Sprintf(`{"endpointUrl":%q,"maxEventsPerBatch":5}`, e+"?secret=1")).json(200)
	require.Equal(t, 2, s.count("SELECT count(*) FROM postrider.handshakes"))
}

func TestEndpointThatFailsThreeTimesIsRejected(t *testing.T) {
	t.Parallel()
	s := setupEngine(t)
	s.topic("orders", "")
	bad := endpoint(t, responses(http.StatusInternalServerError))

	rejection := s.put(billing, to(bad+"/in?secret=1")).rejected(400, "EndpointValidationFailed")
	require.Equal(t, "The attempt to validate the provided endpoint "+bad+
		"/in failed. Try 3 of 3: responded 500, and only 200 with the code counts. "+
		"Let the endpoint respond to the handshake, or set endpointValidation to skip.", rejection.Message)
	require.Equal(t, []string{"endpointUrl", "endpointUrl", "endpointUrl"}, targets(rejection))
	s.get(billing).rejected(404, "NotFound")
	require.Equal(t, 1,
		s.count("SELECT count(*) FROM postrider.handshakes WHERE state = 'failed' AND tries = 3 AND NOT current"))
	require.Equal(t, 3, s.count("SELECT count(*) FROM postrider.handshake_steps WHERE status = 500"))

	good := endpoint(t, sendsBack)
	s.put(billing, to(good)).json(201)
	before := s.get(billing).json(200)
	s.put(billing, to(bad)).rejected(400, "EndpointValidationFailed")
	require.Equal(t, before, s.get(billing).json(200), "the old one goes on untouched")

	skipped := s.put(billing, fmt.Sprintf(`{"endpointUrl":%q,"endpointValidation":"skip"}`, bad)).json(200)
	require.Equal(t, "Succeeded", skipped["provisioningState"])
	require.Nil(t, skipped["validation"])
	// not skipped any more
	s.put(billing, to(bad)).rejected(400, "EndpointValidationFailed")
}

func TestValidationURL(t *testing.T) {
	t.Parallel()
	s := setupEngine(t)
	s.topic("orders", "")
	viewer := s.apiKey("viewer", "read", "")
	e := endpoint(t, responses(http.StatusOK))
	open := func(method, link string) response { return s.send(method, strings.TrimPrefix(link, s.url), "") }
	await := func(name string) (path, link string) {
		path = "/v1/topics/orders/subscriptions/" + name
		made := s.put(path, to(e)).json(201)
		require.Equal(t, "AwaitingManualAction", made["provisioningState"])
		require.Equal(t, "not_validated", made["hold"].(map[string]any)["reason"])
		validation := made["validation"].(map[string]any)
		require.Equal(t, "awaiting", validation["state"])
		require.NotNil(t, validation["expiresAt"])
		require.Contains(t, validation["message"], "open validationUrl within 10 minutes, or set endpointValidation to skip")
		link = validation["validationUrl"].(string)
		require.True(t, strings.HasPrefix(link, s.url+"/topics/orders/eventsubscriptions/"+name+"/validate?id="), link)
		viewed := s.send(http.MethodGet, path, "", "Authorization", "Bearer "+viewer).
			json(200)["validation"].(map[string]any)
		require.Nil(t, viewed["validationUrl"], "it validates the endpoint")
		require.Equal(t, validation["expiresAt"], viewed["expiresAt"])
		return path, link
	}
	path, link := await("billing")
	s.post(path+"/release", "").rejected(409, "EndpointNotValidated")
	s.post(path+"/probe", "").rejected(409, "EndpointNotValidated")
	open(http.MethodGet, link+"x").rejected(404, "NotFound")
	open(http.MethodGet, link+"%00").rejected(404, "NotFound")
	open(http.MethodGet, strings.Replace(link, "billing", "other", 1)).rejected(404, "NotFound")
	open(http.MethodGet, strings.Split(link, "?")[0]).rejected(400, "InvalidRequest")
	for range 2 {
		opened := open(http.MethodGet, link)
		require.Equal(t, http.StatusOK, opened.status)
		require.Equal(t, "Webhook successfully validated as a subscription endpoint.", opened.body)
	}
	shown := s.get(path).json(200)
	require.Equal(t, "Succeeded", shown["provisioningState"])
	require.Nil(t, shown["hold"])
	require.Nil(t, shown["validation"].(map[string]any)["validationUrl"])

	_, link = await("posted")
	require.Equal(t, http.StatusOK, open(http.MethodPost, link).status)

	_, link = await("late")
	s.change("UPDATE postrider_internal.handshakes SET callback_expires_at = now() WHERE state = 'awaiting'")
	open(http.MethodGet, link).rejected(400, "ValidationOver")
}

// A slow endpoint: the event subscription exists, and its deliveries are held until it responds.
func TestSlowEndpointIsValidatedLater(t *testing.T) {
	t.Parallel()
	s := setupEngine(t, func(o *server.Options) { o.ValidationWait = 10 * time.Millisecond })
	key := s.topic("orders", "")
	response, events := make(chan struct{}), make(chan struct{}, 10)
	e := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Aeg-Event-Type") == "Notification" {
			events <- struct{}{}
			return
		}
		<-response
		sendsBack(w, r)
	})
	made := s.put(billing, to(e)).json(201)
	require.Equal(t, "Creating", made["provisioningState"])
	require.Equal(t, "not_validated", made["hold"].(map[string]any)["reason"])
	s.events(key, "1")
	held := s.get(billing).json(200)
	require.Equal(t, 1.0, held["hold"].(map[string]any)["heldDeliveries"])
	require.Equal(t, "pending", held["validation"].(map[string]any)["state"])
	require.Empty(t, events)
	close(response)
	<-events
	require.Equal(t, "Succeeded", s.get(billing).json(200)["provisioningState"])
}

func TestValidateRunsTheHandshakeAgain(t *testing.T) {
	t.Parallel()
	s := setupEngine(t)
	s.topic("orders", "")
	var works atomic.Bool
	e := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		if !works.Load() {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		sendsBack(w, r)
	})
	s.post(billing+"/validate", "").rejected(404, "NotFound")
	s.put(billing, fmt.Sprintf(`{"endpointUrl":%q,"endpointValidation":"skip"}`, e)).json(201)
	s.change(
		"UPDATE postrider_internal.event_subscriptions SET endpoint_validation = 'required', provisioning_state = 'Failed'")
	s.change("INSERT INTO postrider_internal.event_subscription_states (subscription_id, not_validated_since) " +
		"SELECT id, now() FROM postrider_internal.event_subscriptions")
	s.post(billing+"/validate", "").rejected(400, "EndpointValidationFailed")
	require.Equal(t, "Failed", s.get(billing).json(200)["provisioningState"])
	works.Store(true)
	valid := s.post(billing+"/validate", "").json(200)
	require.Equal(t, []any{"Succeeded", nil, "succeeded"},
		[]any{valid["provisioningState"], valid["hold"], valid["validation"].(map[string]any)["state"]})
}

// Skipping the validation of an endpoint on this machine does not skip that of others.
func TestEndpointValidationSetting(t *testing.T) {
	t.Parallel()
	s := setup(t, func(o *server.Options) {
		o.DefaultValidation = v1.SkipOnLoopback
		o.AllowCIDR = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	})
	s.topic("orders", "")
	const here = "http://127.0.0.1:9/"
	rejection := s.put(billing, `{"endpointUrl":"https://example.com","endpointValidation":"maybe"}`).
		rejected(400, "InvalidRequest")
	require.Equal(t, "endpointValidation must be required or skip", rejection.Message)
	for body, state := range map[string]string{
		to(here): "skip Succeeded", to("http://[::1]:9/"): "skip Succeeded", to("http://localhost:9/"): "skip Succeeded",
		to("https://example.com/"): "required Creating", to("https://127.example.a"): "required Creating",
		`{"endpointUrl":"http://127.0.0.1:9/","endpointValidation":"required"}`: "required Creating",
	} {
		made := s.put(billing, body).json(201)
		require.Equal(t, state, fmt.Sprint(made["endpointValidation"], " ", made["provisioningState"]), body)
		s.delete(billing).is(204)
	}
	require.Equal(t, catalog.ValidationRequired, v1.SkipOnLoopback(""))
	for change, status := range map[string]int{
		`{"labels":["a"]}`: 200, to(here): 200, to("http://127.0.0.1:10/"): 200,
		to("https://example.com/"): 400, // no engine calls it here
		`{"endpointUrl":"https://example.com/","endpointValidation":"skip"}`: 200,
	} {
		s.put(billing, to(here)).json(201)
		s.patch(billing, change).is(status)
		require.Equal(t, "skip", s.get(billing).json(200)["endpointValidation"], change)
		s.delete(billing).is(204)
	}
}

// A validated endpoint is replaced only by one that has responded.
func TestSlowEndpointDoesNotReplaceAWorkingOne(t *testing.T) {
	t.Parallel()
	s := setupEngine(t, func(o *server.Options) { o.ValidationWait = 10 * time.Millisecond })
	s.topic("orders", "")
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
}

// Each handshake may take 15 s, so a patch with concurrent changes makes two at most.
func TestPatchMakesTwoHandshakesAtMost(t *testing.T) {
	t.Parallel()
	s := setupEngine(t)
	s.topic("orders", "")
	s.put(billing, `{"endpointUrl":"http://127.0.0.1:9/","endpointValidation":"skip"}`).json(201)
	var requests atomic.Int32
	e := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		s.patch(billing, fmt.Sprintf(`{"labels":["%d"]}`, requests.Add(1))).json(200)
		sendsBack(w, r)
	})
	s.patch(billing, to(e)).rejected(409, "ConcurrentChange")
	require.EqualValues(t, 2, requests.Load())
	require.Equal(t, "http://127.0.0.1:9/", s.get(billing).json(200)["endpointBaseUrl"])
}

// A change that keeps the endpoint keeps its handshake in progress and its validationUrl.
func TestChangesKeepTheValidationURL(t *testing.T) {
	t.Parallel()
	s := setupEngine(t)
	s.topic("orders", "")
	e := endpoint(t, responses(http.StatusOK))
	made := s.put(billing, to(e)).json(201)
	for method, body := range map[string]string{http.MethodPut: to(e), http.MethodPatch: `{"maxEventsPerBatch":5}`} {
		kept := s.manage(method, billing, body).json(200)
		require.Equal(t, "AwaitingManualAction", kept["provisioningState"], method)
		require.Equal(t, made["validation"], kept["validation"], method)
	}
	s.change("UPDATE postrider_internal.handshakes SET callback_expires_at = now()")
	require.NoError(t, s.store.Handshakes.Expire(t.Context()))
	failed := s.patch(billing, `{"labels":["a"]}`).json(200)
	require.Equal(t, "Failed", failed["provisioningState"])
	require.Equal(t, "not_validated", failed["hold"].(map[string]any)["reason"])
	again := s.put(billing, to(e)).json(200)
	require.Equal(t, "AwaitingManualAction", again["provisioningState"])
	require.NotEqual(t, made["validation"].(map[string]any)["validationUrl"],
		again["validation"].(map[string]any)["validationUrl"])
}

// A PUT with If-Match succeeds after its own handshake, although that changes the version.
func TestConditionalPutAfterAFailedHandshake(t *testing.T) {
	t.Parallel()
	s := setupEngine(t)
	s.topic("orders", "")
	var works atomic.Bool
	e := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		if works.Load() {
			sendsBack(w, r)
		}
	})
	s.put(billing, to(e)).json(201)
	s.change("UPDATE postrider_internal.handshakes SET callback_expires_at = now()")
	require.NoError(t, s.store.Handshakes.Expire(t.Context()))
	works.Store(true)
	etag := s.get(billing).json(200)["etag"].(string)
	put := s.send(http.MethodPut, billing, to(e), "Authorization", "Bearer "+adminToken, "Content-Type",
		"application/json", "If-Match", etag)
	require.Equal(t, "Succeeded", put.json(200)["provisioningState"])
}
