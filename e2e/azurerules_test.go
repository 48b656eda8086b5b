package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// azureScript is an endpoint whose responses are given by the id of the only event.
type azureScript struct {
	statuses map[string][]int // of one attempt after the other; 0 closes the connection

	mu      sync.Mutex
	counts  map[string][]string // aeg-delivery-count of the attempts
	headers []http.Header
	batches []int
}

// ServeHTTP implements http.Handler.
func (s *azureScript) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // a request that was cut
	}
	events, _ := faultEvents(body)
	id := relayKeyOf(events[0]).id
	s.mu.Lock()
	attempt := len(s.counts[id])
	s.counts[id] = append(s.counts[id], r.Header.Get("aeg-delivery-count"))
	s.headers = append(s.headers, r.Header)
	s.batches = append(s.batches, len(events))
	s.mu.Unlock()
	switch script := s.statuses[id]; {
	case attempt >= len(script):
	case script[attempt] == 0:
		panic(http.ErrAbortHandler)
	default:
		w.WriteHeader(script[attempt])
	}
}

// startAzure has an event subscription deliver to a handler.
func startAzure(t *testing.T, late float64, s *azureSubscription, handler http.Handler) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	s.azure = newAzure(t, late, 1, strings.TrimPrefix(server.URL, "http://"))
	s.endpoint = server.URL + "/events?secret=a%2Fb"
	s.begin(t, 2)
}

// The simulated Azure follows the documented rules: which responses are successes, which lose the event, and that
// everything else is retried, with the number of earlier attempts in a header.
func TestAzureSimulatorFollowsTheStatusRules(t *testing.T) {
	t.Parallel()
	script := &azureScript{counts: map[string][]string{}, statuses: map[string][]int{
		"200": {200}, "201": {201}, "202": {202}, "203": {203}, "204": {204},
		"400": {400}, "401": {401}, "403": {403}, "413": {413}, "later": {404, 413},
		"205": {205, 200}, "408": {408, 200}, "429": {429, 200}, "again": {503, 404, 0, 302, 200},
	}}
	feed := &relayFeed{
		azureSubscription: azureSubscription{name: "Rules", source: azureTopic + "rules", schema: azureGrid},
	}
	startAzure(t, 0, &feed.azureSubscription, script)
	var events []*azureEvent
	for id := range script.statuses {
		events = append(events, feed.gridEvent(id, "Shop.OrderPlaced", "1.1", 0))
	}
	feed.publish(events...)
	eventually(t, "every event has ended", feed.ended)

	script.mu.Lock() // a request that was cut may still arrive
	defer script.mu.Unlock()
	var lost []string
	for _, loss := range feed.losses() {
		lost = append(lost, fmt.Sprintf("%s: %d after %d", loss.id, loss.status, loss.attempts))
	}
	require.ElementsMatch(t,
		[]string{"400: 400 after 1", "401: 401 after 1", "403: 403 after 1", "413: 413 after 1", "later: 413 after 2"}, lost)
	require.Equal(t, 9, feed.deliveredSoFar())
	require.Equal(t, []string{"0", "1", "2", "3", "4"}, script.counts["again"])
	for _, id := range []string{"205", "408", "429"} {
		require.Equal(t, []string{"0", "1"}, script.counts[id])
	}
	require.Equal(t, 1, feed.made("no response"))
	for _, header := range script.headers {
		require.Equal(t, []string{"Notification", "RULES", "1", "1.1", "application/json; charset=utf-8", "", ""}, []string{
			header.Get("aeg-event-type"), header.Get("aeg-subscription-name"), header.Get("aeg-metadata-version"),
			header.Get("aeg-data-version"), header.Get("content-type"), header.Get("accept"), header.Get("user-agent"),
		})
		require.Len(t, header.Get("aeg-output-event-id"), 36)
	}
}

func TestAzureSimulatorWaits(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		attempts, status int
		wait             time.Duration
	}{
		{1, 0, 10 * time.Second},
		{1, http.StatusTooManyRequests, 10 * time.Second},
		{1, http.StatusServiceUnavailable, 30 * time.Second},
		{1, http.StatusRequestTimeout, 2 * time.Minute},
		{4, http.StatusServiceUnavailable, 5 * time.Minute},
		{9, http.StatusInternalServerError, 6 * time.Hour},
		{10, http.StatusInternalServerError, 12 * time.Hour},
	} {
		wait, again := azureWait(row.attempts, row.status)
		require.True(t, again)
		require.Equal(t, row.wait/azureScale, wait, "%+v", row)
	}
}

// A late response counts as none: the events are delivered again, some after they had a response. A batch holds no more
// events than its event subscription allows, and some are in several requests.
func TestAzureSimulatorRepeatsAfterLateResponses(t *testing.T) {
	t.Parallel()
	script := &azureScript{counts: map[string][]string{}}
	feed := &relayFeed{azureSubscription: azureSubscription{
		name: "late", source: azureTopic + "late", schema: azureCloud,
		batch: 4, namespace: true,
	}, write: publishedCloudEvent}
	startAzure(t, 0.3, &feed.azureSubscription, script)
	feed.publishPart(0, 200)
	eventually(t, "every event has ended", feed.ended)

	script.mu.Lock() // a request that was cut may still arrive
	defer script.mu.Unlock()
	require.Empty(t, feed.losses())
	require.Equal(t, 200, feed.deliveredSoFar())
	require.Equal(t, 4, slices.Max(script.batches))
	received := 0
	for _, n := range script.batches {
		received += n
	}
	require.Greater(t, received, 200)
	require.Equal(t, 200, feed.made("200"), "no event was delivered by a late response")
	require.Positive(t, feed.made("cut after the response"))
	require.Zero(t, feed.made("no response"))
	for _, header := range script.headers {
		require.Equal(t, []string{"1.0", "", "application/cloudevents-batch+json; charset=utf-8", "false"}, []string{
			header.Get("aeg-metadata-version"), header.Get("aeg-data-version"), header.Get("content-type"),
			header.Get("aeg-compatibility-mode-enabled"),
		})
	}
}

var azureCode = regexp.MustCompile(`"validationCode":"([^"]+)"`)

// Receivers that Event Grid does not validate: with another status, a capital letter in the member, a chunked body, or
// without the headers.
func TestAzureSimulatorValidates(t *testing.T) {
	t.Parallel()
	code := func(r *http.Request) string {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.RawQuery != "secret=a%2Fb" || r.Header.Get("aeg-event-type") != "SubscriptionValidation" {
			return ""
		}
		return azureCode.FindStringSubmatch(string(body))[1]
	}
	grid := func(status int, form string, pieces bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			text := fmt.Sprintf(form, code(r))
			w.WriteHeader(status)
			if pieces {
				w.(http.Flusher).Flush()
			}
			_, _ = io.WriteString(w, text)
		}
	}
	cloud := func(status int, origin, rate string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodOptions && r.Header.Get("WebHook-Request-Origin") == "eventgrid.azure.net" {
				w.Header().Set("WebHook-Allowed-Origin", origin)
				w.Header().Set("WebHook-Allowed-Rate", rate)
			}
			w.WriteHeader(status)
		}
	}
	const good = `{"validationResponse":"%s"}`
	for name, row := range map[string]struct {
		schema, problem string
		handler         http.Handler
	}{
		"good":           {azureGrid, "", grid(200, good, false)},
		"custom":         {azureCustom, "", grid(200, good, false)},
		"202":            {azureGrid, "the status is 202", grid(202, good, false)},
		"capital":        {azureGrid, "is not the code", grid(200, `{"ValidationResponse":"%s"}`, false)},
		"chunked":        {azureGrid, "no Content-Length", grid(200, good, true)},
		"text":           {azureGrid, "no JSON object", grid(200, `%s`, false)},
		"cloud":          {azureCloud, "", cloud(200, "eventgrid.azure.net", "120")},
		"any origin":     {azureCloud, "", cloud(204, "*", "*")},
		"another origin": {azureCloud, "allowed origin", cloud(200, "example.com", "*")},
		"no rate":        {azureCloud, "no allowed rate", cloud(200, "*", "")},
		"no OPTIONS":     {azureCloud, "the status is 405", cloud(405, "*", "*")},
		"any status":     {azureCloud, "", cloud(404, "*", "*")},
	} {
		s := &azureSubscription{name: "check", source: azureTopic + "check", schema: row.schema}
		startAzure(t, 0, s, row.handler)
		_, problem := s.create(t.Context())
		if row.problem == "" {
			require.Empty(t, problem, name)
			continue
		}
		require.Contains(t, problem, row.problem, name)
	}
}
