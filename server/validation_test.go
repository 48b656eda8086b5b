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
func setupEngine(t *testing.T, change ...func(*server.Options)) *bundle {
	t.Helper()
	local := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	b := setupWorkers(t, 20, append([]func(*server.Options){func(o *server.Options) {
		o.AllowCIDR, o.DefaultValidation, o.ValidationWait = local, nil, 0
	}}, change...)...)
	engine, err := jobs.New(jobs.Options{
		Parts: b.store.Parts, Logger: slog.New(slog.DiscardHandler), AllowCIDR: local, HandshakePause: time.Millisecond,
		StopTimeout: time.Second,
	})
	require.NoError(t, err)
	require.NoError(t, engine.Start(t.Context()))
	t.Cleanup(func() { _ = engine.Stop(t.Context()) })
	return b
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
	b := setupEngine(t)
	b.topic("orders", "")
	b.topic("custom", customTopic)
	e := endpoint(t, sendsBack)

	made := b.manage(http.MethodPut, billing, to(e+"?secret=1")).json(http.StatusCreated)
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
	require.Equal(t, validation, b.manage(http.MethodGet, billing, "").json(http.StatusOK)["validation"])

	made = b.manage(http.MethodPut, "/v1/topics/custom/subscriptions/billing", to(e)).json(http.StatusCreated)
	require.Equal(t, "CustomInputSchema Succeeded",
		made["eventDeliverySchema"].(string)+" "+made["provisioningState"].(string))
	require.Equal(t, 2, b.count("SELECT count(*) FROM postrider.handshakes WHERE state = 'succeeded' AND current"))

	// A change that keeps the endpoint makes no handshake.
	b.manage(http.MethodPut, billing, fmt.Sprintf(`{"endpointUrl":%q,"maxEventsPerBatch":5}`, e+"?secret=1")).
		json(http.StatusOK)
	require.Equal(t, 2, b.count("SELECT count(*) FROM postrider.handshakes"))
}

func TestEndpointThatFailsThreeTimesIsRejected(t *testing.T) {
	t.Parallel()
	b := setupEngine(t)
	b.topic("orders", "")
	bad := endpoint(t, responses(http.StatusInternalServerError))

	rejection := b.manage(http.MethodPut, billing, to(bad+"/in?secret=1")).
		rejected(http.StatusBadRequest, "EndpointValidationFailed")
	require.Equal(t, "The attempt to validate the provided endpoint "+bad+
		"/in failed. Try 3 of 3: responded 500, and only 200 with the code counts. "+
		"Let the endpoint respond to the handshake, or set endpointValidation to skip.", rejection.Message)
	require.Equal(t, []string{"endpointUrl", "endpointUrl", "endpointUrl"}, targets(rejection))
	b.manage(http.MethodGet, billing, "").rejected(http.StatusNotFound, "NotFound")
	require.Equal(t, 1,
		b.count("SELECT count(*) FROM postrider.handshakes WHERE state = 'failed' AND tries = 3 AND NOT current"))
	require.Equal(t, 3, b.count("SELECT count(*) FROM postrider.handshake_steps WHERE status = 500"))

	good := endpoint(t, sendsBack)
	b.manage(http.MethodPut, billing, to(good)).json(http.StatusCreated)
	before := b.manage(http.MethodGet, billing, "").json(http.StatusOK)
	b.manage(http.MethodPut, billing, to(bad)).rejected(http.StatusBadRequest, "EndpointValidationFailed")
	require.Equal(t, before, b.manage(http.MethodGet, billing, "").json(http.StatusOK), "the old one goes on untouched")

	skipped := b.manage(http.MethodPut, billing, fmt.Sprintf(`{"endpointUrl":%q,"endpointValidation":"skip"}`, bad)).
		json(http.StatusOK)
	require.Equal(t, "Succeeded", skipped["provisioningState"])
	require.Nil(t, skipped["validation"])
	// not skipped any more
	b.manage(http.MethodPut, billing, to(bad)).rejected(http.StatusBadRequest, "EndpointValidationFailed")
}

func TestValidationURL(t *testing.T) {
	t.Parallel()
	b := setupEngine(t)
	b.topic("orders", "")
	viewer := b.apiKey("viewer", "read", "")
	e := endpoint(t, responses(http.StatusOK))
	open := func(method, link string) response { return b.send(method, strings.TrimPrefix(link, b.url), "") }
	await := func(name string) (path, link string) {
		path = "/v1/topics/orders/subscriptions/" + name
		made := b.manage(http.MethodPut, path, to(e)).json(http.StatusCreated)
		require.Equal(t, "AwaitingManualAction", made["provisioningState"])
		require.Equal(t, "not_validated", made["hold"].(map[string]any)["reason"])
		validation := made["validation"].(map[string]any)
		require.Equal(t, "awaiting", validation["state"])
		require.NotNil(t, validation["expiresAt"])
		require.Contains(t, validation["message"], "open validationUrl within 10 minutes, or set endpointValidation to skip")
		link = validation["validationUrl"].(string)
		require.True(t, strings.HasPrefix(link, b.url+"/topics/orders/eventsubscriptions/"+name+"/validate?id="), link)
		viewed := b.send(http.MethodGet, path, "", "Authorization", "Bearer "+viewer).
			json(http.StatusOK)["validation"].(map[string]any)
		require.Nil(t, viewed["validationUrl"], "it validates the endpoint")
		require.Equal(t, validation["expiresAt"], viewed["expiresAt"])
		return path, link
	}
	path, link := await("billing")
	b.manage(http.MethodPost, path+"/release", "").rejected(http.StatusConflict, "EndpointNotValidated")
	b.manage(http.MethodPost, path+"/probe", "").rejected(http.StatusConflict, "EndpointNotValidated")
	open(http.MethodGet, link+"x").rejected(http.StatusNotFound, "NotFound")
	open(http.MethodGet, link+"%00").rejected(http.StatusNotFound, "NotFound")
	open(http.MethodGet, strings.Replace(link, "billing", "other", 1)).rejected(http.StatusNotFound, "NotFound")
	open(http.MethodGet, strings.Split(link, "?")[0]).rejected(http.StatusBadRequest, "InvalidRequest")
	for range 2 {
		opened := open(http.MethodGet, link)
		require.Equal(t, http.StatusOK, opened.status)
		require.Equal(t, "Webhook successfully validated as a subscription endpoint.", opened.body)
	}
	shown := b.manage(http.MethodGet, path, "").json(http.StatusOK)
	require.Equal(t, "Succeeded", shown["provisioningState"])
	require.Nil(t, shown["hold"])
	require.Nil(t, shown["validation"].(map[string]any)["validationUrl"])

	_, link = await("posted")
	require.Equal(t, http.StatusOK, open(http.MethodPost, link).status)

	_, link = await("late")
	b.change("UPDATE postrider_internal.handshakes SET callback_expires_at = now() WHERE state = 'awaiting'")
	open(http.MethodGet, link).rejected(http.StatusBadRequest, "ValidationOver")
}

func TestValidationURLBeginsWithThePublicURL(t *testing.T) {
	t.Parallel()
	b := setupEngine(t, func(o *server.Options) { o.PublicURL = "https://events.example.com/bus" })
	b.topic("orders", "")
	made := b.manage(http.MethodPut, billing, to(endpoint(t, responses(http.StatusOK)))).json(http.StatusCreated)
	require.Contains(t, made["validation"].(map[string]any)["validationUrl"],
		"https://events.example.com/bus/topics/orders/eventsubscriptions/billing/validate?id=")
}

func TestWrongCodesAreLimited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	guess := func() response {
		return b.send(http.MethodGet, "/topics/orders/eventsubscriptions/billing/validate?id=guessed", "")
	}
	for range 30 {
		guess().rejected(http.StatusNotFound, "NotFound")
	}
	guess().rejected(http.StatusTooManyRequests, "TooManyRequests")
}

// A slow endpoint: the event subscription exists, and its deliveries are held until it responds.
func TestSlowEndpointIsValidatedLater(t *testing.T) {
	t.Parallel()
	b := setupEngine(t, func(o *server.Options) { o.ValidationWait = 10 * time.Millisecond })
	key := b.topic("orders", "")
	response, events := make(chan struct{}), make(chan struct{}, 10)
	e := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Aeg-Event-Type") == "Notification" {
			events <- struct{}{}
			return
		}
		<-response
		sendsBack(w, r)
	})
	made := b.manage(http.MethodPut, billing, to(e)).json(http.StatusCreated)
	require.Equal(t, "Creating", made["provisioningState"])
	require.Equal(t, "not_validated", made["hold"].(map[string]any)["reason"])
	require.Equal(t, http.StatusOK, b.publish("orders", key, "["+gridEvent("1")+"]").status)
	held := b.manage(http.MethodGet, billing, "").json(http.StatusOK)
	require.Equal(t, 1.0, held["hold"].(map[string]any)["heldDeliveries"])
	require.Equal(t, "pending", held["validation"].(map[string]any)["state"])
	require.Empty(t, events)
	close(response)
	<-events
	require.Equal(t, "Succeeded", b.manage(http.MethodGet, billing, "").json(http.StatusOK)["provisioningState"])
}

func TestValidateRunsTheHandshakeAgain(t *testing.T) {
	t.Parallel()
	b := setupEngine(t)
	b.topic("orders", "")
	status := make(chan int, 10)
	e := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		if s := <-status; s != http.StatusOK {
			w.WriteHeader(s)
			return
		}
		sendsBack(w, r)
	})
	b.manage(http.MethodPost, billing+"/validate", "").rejected(http.StatusNotFound, "NotFound")
	b.manage(http.MethodPut, billing, fmt.Sprintf(`{"endpointUrl":%q,"endpointValidation":"skip"}`, e)).
		json(http.StatusCreated)
	b.change(
		"UPDATE postrider_internal.event_subscriptions SET endpoint_validation = 'required', provisioning_state = 'Failed'")
	b.change("INSERT INTO postrider_internal.event_subscription_states (subscription_id, not_validated_since) " +
		"SELECT id, now() FROM postrider_internal.event_subscriptions")
	for range 3 {
		status <- http.StatusNotFound
	}
	b.manage(http.MethodPost, billing+"/validate", "").rejected(http.StatusBadRequest, "EndpointValidationFailed")
	require.Equal(t, "Failed", b.manage(http.MethodGet, billing, "").json(http.StatusOK)["provisioningState"])
	status <- http.StatusOK
	valid := b.manage(http.MethodPost, billing+"/validate", "").json(http.StatusOK)
	require.Equal(t, "Succeeded", valid["provisioningState"])
	require.Nil(t, valid["hold"])
	require.Equal(t, "succeeded", valid["validation"].(map[string]any)["state"])
}

func TestEndpointValidationSetting(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *server.Options) {
		o.DefaultValidation = v1.SkipOnLoopback
		o.AllowCIDR = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	})
	b.topic("orders", "")
	rejection := b.manage(http.MethodPut, billing, `{"endpointUrl":"https://example.com","endpointValidation":"maybe"}`).
		rejected(http.StatusBadRequest, "InvalidRequest")
	require.Equal(t, "endpointValidation must be required or skip", rejection.Message)
	for url, state := range map[string]string{
		"http://127.0.0.1:9/":   "skip Succeeded",
		"http://[::1]:9/":       "skip Succeeded",
		"http://localhost:9/":   "skip Succeeded",
		"https://example.com/":  "required Creating",
		"https://127.example.a": "required Creating",
	} {
		name := strings.NewReplacer(":", "", "/", "", "[", "", "]", "").Replace(url)
		made := b.manage(http.MethodPut, "/v1/topics/orders/subscriptions/"+name, to(url)).json(http.StatusCreated)
		require.Equal(t, state, made["endpointValidation"].(string)+" "+made["provisioningState"].(string), url)
	}
	made := b.manage(http.MethodPut, billing, `{"endpointUrl":"http://127.0.0.1:9/","endpointValidation":"required"}`).
		json(http.StatusCreated)
	require.Equal(t, "Creating", made["provisioningState"], "what is stated goes before the default")
	require.Equal(t, catalog.ValidationRequired, v1.SkipOnLoopback(""))
}

// Skipping the validation of an endpoint on this machine does not skip that of others.
func TestPatchedEndpointIsValidatedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *server.Options) {
		o.DefaultValidation, o.AllowCIDR = v1.SkipOnLoopback, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	b.topic("orders", "")
	patch := func(name, change string) string {
		path := "/v1/topics/orders/subscriptions/" + name
		b.manage(http.MethodPut, path, to("http://127.0.0.1:9/")).json(http.StatusCreated)
		response := b.manage(http.MethodPatch, path, change)
		return fmt.Sprintf("%d %v", response.status,
			b.manage(http.MethodGet, path, "").json(http.StatusOK)["endpointValidation"])
	}
	require.Equal(t, "200 skip", patch("other-label", `{"labels":["a"]}`))
	require.Equal(t, "200 skip", patch("same-endpoint", to("http://127.0.0.1:9/")))
	require.Equal(t, "200 skip", patch("here", to("http://127.0.0.1:10/")))
	require.Equal(t, "400 skip", patch("elsewhere", to("https://example.com/")), "no engine calls it here")
	require.Equal(t, "200 skip", patch("vouched", `{"endpointUrl":"https://example.com/","endpointValidation":"skip"}`))
}

// A validated endpoint is replaced only by one that has responded.
func TestSlowEndpointDoesNotReplaceAWorkingOne(t *testing.T) {
	t.Parallel()
	b := setupEngine(t, func(o *server.Options) { o.ValidationWait = 10 * time.Millisecond })
	b.topic("orders", "")
	b.manage(http.MethodPut, billing, `{"endpointUrl":"http://127.0.0.1:9/","endpointValidation":"skip"}`).
		json(http.StatusCreated)
	before := b.manage(http.MethodGet, billing, "").json(http.StatusOK)
	response := make(chan struct{})
	e := endpoint(t, func(http.ResponseWriter, *http.Request) { <-response })
	t.Cleanup(func() { close(response) })
	for _, method := range []string{http.MethodPut, http.MethodPatch} {
		rejection := b.manage(method, billing, to(e+"/in?secret=1")).
			rejected(http.StatusBadRequest, "EndpointValidationFailed")
		require.Equal(t, "The attempt to validate the provided endpoint "+e+
			"/in failed. It did not respond within 10ms, so the previous endpoint is kept. "+
			"Try again, or set endpointValidation to skip.", rejection.Message)
	}
	require.Equal(t, before, b.manage(http.MethodGet, billing, "").json(http.StatusOK))
}

// Each handshake may take 15 s, so a patch with concurrent changes makes two at most.
func TestPatchMakesTwoHandshakesAtMost(t *testing.T) {
	t.Parallel()
	b := setupEngine(t)
	b.topic("orders", "")
	b.manage(http.MethodPut, billing, `{"endpointUrl":"http://127.0.0.1:9/","endpointValidation":"skip"}`).
		json(http.StatusCreated)
	var requests atomic.Int32
	e := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		b.manage(http.MethodPatch, billing, fmt.Sprintf(`{"labels":["%d"]}`, requests.Add(1))).json(http.StatusOK)
		sendsBack(w, r)
	})
	b.manage(http.MethodPatch, billing, to(e)).rejected(http.StatusConflict, "ConcurrentChange")
	require.EqualValues(t, 2, requests.Load())
	require.Equal(t, "http://127.0.0.1:9/", b.manage(http.MethodGet, billing, "").json(http.StatusOK)["endpointBaseUrl"])
}

// A change that keeps the endpoint keeps its handshake in progress and its validationUrl.
func TestChangesKeepTheValidationURL(t *testing.T) {
	t.Parallel()
	b := setupEngine(t)
	b.topic("orders", "")
	e := endpoint(t, responses(http.StatusOK))
	made := b.manage(http.MethodPut, billing, to(e)).json(http.StatusCreated)
	for method, body := range map[string]string{http.MethodPut: to(e), http.MethodPatch: `{"maxEventsPerBatch":5}`} {
		kept := b.manage(method, billing, body).json(http.StatusOK)
		require.Equal(t, "AwaitingManualAction", kept["provisioningState"], method)
		require.Equal(t, made["validation"], kept["validation"], method)
	}
	b.change("UPDATE postrider_internal.handshakes SET callback_expires_at = now()")
	require.NoError(t, b.store.Handshakes.Expire(t.Context()))
	failed := b.manage(http.MethodPatch, billing, `{"labels":["a"]}`).json(http.StatusOK)
	require.Equal(t, "Failed", failed["provisioningState"])
	require.Equal(t, "not_validated", failed["hold"].(map[string]any)["reason"])
	again := b.manage(http.MethodPut, billing, to(e)).json(http.StatusOK)
	require.Equal(t, "AwaitingManualAction", again["provisioningState"])
	require.NotEqual(t, made["validation"].(map[string]any)["validationUrl"],
		again["validation"].(map[string]any)["validationUrl"])
}

// A PUT with If-Match succeeds after its own handshake, although that changes the version.
func TestConditionalPutAfterAFailedHandshake(t *testing.T) {
	t.Parallel()
	b := setupEngine(t)
	b.topic("orders", "")
	var works atomic.Bool
	e := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		if works.Load() {
			sendsBack(w, r)
		}
	})
	b.manage(http.MethodPut, billing, to(e)).json(http.StatusCreated)
	b.change("UPDATE postrider_internal.handshakes SET callback_expires_at = now()")
	require.NoError(t, b.store.Handshakes.Expire(t.Context()))
	works.Store(true)
	etag := b.manage(http.MethodGet, billing, "").json(http.StatusOK)["etag"].(string)
	put := b.send(http.MethodPut, billing, to(e), "Authorization", "Bearer "+adminToken, "Content-Type",
		"application/json", "If-Match", etag)
	require.Equal(t, "Succeeded", put.json(http.StatusOK)["provisioningState"])
}
