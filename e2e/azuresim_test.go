package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
)

const (
	// azureScale divides the waits of Event Grid: 10 s become 20 ms.
	azureScale = 500
	// azureAckTimeout is how long Event Grid waits for a response. It is not divided: a busy machine needs some of it.
	azureAckTimeout = 30 * time.Second
	// azureTimeToLive and azureAttempts are the defaults of a retry policy. The first to end wins.
	azureTimeToLive = 24 * time.Hour / azureScale
	azureAttempts   = 30
	// azureValidations is how often a validation is tried. No page has the number.
	azureValidations = 3
	// azureTime has the seven fractional digits of .NET.
	azureTime = "2006-01-02T15:04:05.0000000Z"

	azureGrid   = "EventGridSchema"
	azureCloud  = "CloudEventSchemaV1_0"
	azureCustom = "CustomInputSchema"
)

// azureSteps are the waits after the first attempts; then an attempt is made every 12 hours.
var azureSteps = []time.Duration{
	10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour,
	3 * time.Hour, 6 * time.Hour,
}

// azureWait is the wait after a failed attempt, divided; attempts includes that one. Status 0 is no response. Some
// statuses lose the event at once. Source: Microsoft, Azure Event Grid message delivery and retry, 2026-02-09.
func azureWait(attempts, status int) (wait time.Duration, again bool) {
	least := 10 * time.Second
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestEntityTooLarge:
		return 0, false
	case http.StatusRequestTimeout:
		least = 2 * time.Minute
	case http.StatusServiceUnavailable:
		least = 30 * time.Second
	}
	step := 12 * time.Hour
	if attempts <= len(azureSteps) {
		step = azureSteps[attempts-1]
	}
	return max(step, least) / azureScale, true
}

// azureEvent is an event that an event subscription of Azure matched.
type azureEvent struct {
	source      string // topic in the Event Grid schema
	id, text    string
	dataVersion string // of the Event Grid schema
	outputID    string // Event Grid's own id
	attempts    int    // that ended
	since       time.Time
}

// relayKey identifies an event. An id alone does not: each source has its own.
type relayKey struct{ source, id string }

func (e *azureEvent) key() relayKey { return relayKey{e.source, e.id} }

// azureLoss is an event that Event Grid abandoned. Without a dead-letter destination it is dropped.
type azureLoss struct {
	relayKey
	subscription     string
	status, attempts int
	why              string
}

// azure is what Azure Event Grid does, written from Microsoft's pages and recorded traffic without knowledge of the
// server: validation, deliveries with retries, and the notice of a deletion. It differs in three points: it speaks HTTP
// without TLS, the waits are divided by azureScale, and responses are late with a probability that the test sets.
type azure struct {
	client *http.Client

	mu sync.Mutex
	// late is how probable it is that a response counts as none, because its connection is cut before or after it. The
	// request is then made again.
	late      float64
	random    *rand.Rand
	addresses []string
	dialed    int
	pending   int
	sent      map[relayKey]string // text
	delivered map[relayKey]bool
	lost      []azureLoss
	outcomes  map[string]int // attempts of events by outcome: a status, or the words of attempt
}

func newAzure(t *testing.T, late float64, seed uint64, addresses ...string) *azure {
	t.Helper()
	a := &azure{
		late: late, random: rand.New(rand.NewPCG(seed, 0)), addresses: addresses, sent: map[relayKey]string{},
		delivered: map[relayKey]bool{}, outcomes: map[string]int{},
	}
	// Event Grid sends no Accept and no Accept-Encoding, and follows no redirect.
	transport := &http.Transport{DialContext: a.dial, DisableCompression: true, MaxIdleConnsPerHost: 64}
	a.client = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(transport.CloseIdleConnections)
	return a
}

// dial connects to the addresses in turn, whatever the host is, like a load balancer without health checks.
func (a *azure) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	a.mu.Lock()
	address := a.addresses[a.dialed%len(a.addresses)]
	a.dialed++
	a.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// replace has new connections go to another address than before.
func (a *azure) replace(before, after string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.addresses[slices.Index(a.addresses, before)] = after
}

func (a *azure) below(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.random.IntN(n)
}

func (a *azure) isLate() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.random.Float64() < a.late
}

// ended reports whether every event was delivered or lost.
func (a *azure) ended() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pending == 0
}

// deliveredSoFar is how many events had a response of 200 to 204 that was not late.
func (a *azure) deliveredSoFar() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.delivered)
}

func (a *azure) losses() []azureLoss {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.lost)
}

// made is how many attempts of events had that outcome.
func (a *azure) made(outcome string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.outcomes[outcome]
}

// azureSubscription is an event subscription of Azure whose endpoint is a webhook.
type azureSubscription struct {
	*azure
	name     string
	source   string // the ARM id of the topic, system topic or namespace topic
	endpoint string // with its query, which holds the key
	schema   string
	batch    int // maxEventsPerBatch
	// namespace is one of a namespace topic: its handshake offers no callback, and its deliveries have one more header.
	namespace bool

	ready  chan *azureEvent // that are due
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// begin delivers what is published by as many senders at once, until the test or the event subscription ends. Event
// Grid begins when the endpoint is validated.
func (s *azureSubscription) begin(t *testing.T, senders int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s.ready, s.cancel = make(chan *azureEvent, 10_000), cancel // more than a test publishes to one
	for range senders {
		s.work.Go(func() {
			for {
				select {
				case e := <-s.ready:
					s.deliver(ctx, s.fill(e))
				case <-ctx.Done():
					return
				}
			}
		})
	}
	t.Cleanup(s.end)
}

func (s *azureSubscription) end() {
	s.cancel()
	s.work.Wait()
}

// publish has the events delivered.
func (s *azureSubscription) publish(events ...*azureEvent) {
	s.mu.Lock()
	s.pending += len(events)
	for _, e := range events {
		e.since, s.sent[e.key()] = time.Now(), e.text
	}
	s.mu.Unlock()
	for _, e := range events {
		e.outputID = uuid.NewString()
		s.ready <- e
	}
}

// fill adds what else is due: Event Grid never waits to fill a batch. Retries are mixed with new events.
func (s *azureSubscription) fill(first *azureEvent) []*azureEvent {
	batch := []*azureEvent{first}
	for len(batch) < max(s.batch, 1) {
		select {
		case e := <-s.ready:
			batch = append(batch, e)
		default:
			return batch
		}
	}
	return batch
}

// deliver makes one attempt: all or none. The headers are those of the first event.
func (s *azureSubscription) deliver(ctx context.Context, batch []*azureEvent) {
	texts := make([]string, len(batch))
	for i, e := range batch {
		texts[i] = e.text
	}
	media, body := s.envelope(texts)
	header := s.header("Notification", batch[0].dataVersion)
	header["aeg-delivery-count"] = []string{fmt.Sprint(batch[0].attempts)}
	header["aeg-output-event-id"] = []string{batch[0].outputID}
	header["content-type"] = []string{media}

	response := s.attempt(ctx, body, header)
	if ctx.Err() != nil {
		return // the test or the event subscription has ended
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcomes[response.outcome] += len(batch)
	for _, e := range batch {
		s.decide(ctx, e, response)
	}
}

// decide records what the attempt meant for one event, and makes it due again. The lock is held.
func (s *azureSubscription) decide(ctx context.Context, e *azureEvent, response azureResponse) {
	e.attempts++
	if response.status >= http.StatusOK && response.status <= http.StatusNoContent {
		s.delivered[e.key()] = true
		s.pending--
		return
	}
	wait, again := azureWait(e.attempts, response.status)
	wait += time.Duration(s.random.Int64N(int64(wait)/10 + 1))
	if !again || e.attempts >= azureAttempts || time.Since(e.since)+wait >= azureTimeToLive {
		s.lost = append(s.lost, azureLoss{e.key(), s.name, response.status, e.attempts, response.body})
		s.pending--
		return
	}
	time.AfterFunc(wait, func() {
		if ctx.Err() == nil {
			s.ready <- e
		}
	})
}

// azureResponse is a response as Event Grid sees it. Status 0 is none.
type azureResponse struct {
	status  int
	header  http.Header
	body    string
	sized   bool // had Content-Length, or no body
	outcome string
}

// attempt posts events. If the response is late, the connection is cut some moments after the request was sent, or
// after the response, which does not count then.
func (s *azureSubscription) attempt(ctx context.Context, body string, header http.Header) azureResponse {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := s.isLate()
	if late && s.below(2) == 0 {
		after := time.Duration(s.below(int(20 * time.Millisecond)))
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			WroteRequest: func(httptrace.WroteRequestInfo) { time.AfterFunc(after, cancel) },
		})
	}
	response := s.request(ctx, http.MethodPost, body, header)
	switch {
	case late && response.status == 0:
		response.outcome = "cut before the response"
	case late:
		response = azureResponse{outcome: "cut after the response"}
	case response.status == 0:
		response.outcome = "no response"
	default:
		response.outcome = fmt.Sprint(response.status)
	}
	return response
}

// request goes to the exact URL. Its header has the names in lower case, as Event Grid writes them.
func (s *azureSubscription) request(ctx context.Context, method, body string, header http.Header) azureResponse {
	ctx, cancel := context.WithTimeout(ctx, azureAckTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.endpoint, strings.NewReader(body))
	if err != nil {
		return azureResponse{body: err.Error()}
	}
	header["User-Agent"] = []string{""} // none
	r.Header = header
	response, err := s.client.Do(r)
	if err != nil {
		return azureResponse{body: err.Error()}
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return azureResponse{body: err.Error()}
	}
	return azureResponse{
		status: response.StatusCode, header: response.Header, body: string(raw), sized: response.ContentLength >= 0,
	}
}

// header has what every request with an event has. Event Grid writes the subscription's name in upper case.
func (s *azureSubscription) header(eventType, dataVersion string) http.Header {
	header := http.Header{
		"aeg-event-type": {eventType}, "aeg-subscription-name": {strings.ToUpper(s.name)}, "aeg-metadata-version": {"1"},
	}
	if s.schema == azureCloud {
		header["aeg-metadata-version"] = []string{"1.0"} // the specversion
	} else {
		header["aeg-data-version"] = []string{dataVersion}
	}
	if s.namespace {
		header["aeg-compatibility-mode-enabled"] = []string{"false"}
	}
	return header
}

// envelope is the body of a request: one CloudEvent is an object, all else is an array.
func (s *azureSubscription) envelope(texts []string) (media, body string) {
	array := "[" + strings.Join(texts, ",") + "]"
	switch {
	case s.schema != azureCloud:
		return "application/json; charset=utf-8", array
	case s.batch > 1:
		return "application/cloudevents-batch+json; charset=utf-8", array
	}
	return "application/cloudevents+json; charset=utf-8", texts[0]
}

// create validates the endpoint, as Event Grid does on every create and update. problem is empty if it is validated;
// response is the last response.
func (s *azureSubscription) create(ctx context.Context) (response azureResponse, problem string) {
	for range azureValidations {
		if response, problem = s.validate(ctx); problem == "" {
			break
		}
		select {
		case <-time.After(5 * time.Second / azureScale):
		case <-ctx.Done():
		}
	}
	return response, problem
}

// validate is one try.
func (s *azureSubscription) validate(ctx context.Context) (response azureResponse, problem string) {
	if s.schema == azureCloud {
		return s.validateCloud(ctx)
	}
	return s.validateGrid(ctx)
}

// validateGrid sends a code that the response must repeat. Source: Microsoft, Endpoint validation with Event Grid event
// schema, 2024-09-25; the casing of the topic and the member's small v are from recorded traffic.
func (s *azureSubscription) validateGrid(ctx context.Context) (response azureResponse, problem string) {
	code, now := strings.ToUpper(uuid.NewString()), time.Now().UTC().Format(azureTime)
	body := fmt.Sprintf(`[{"id":%q,"topic":%q,"subject":"","data":{"validationCode":%q,"validationUrl":%q},`+
		`"eventType":"Microsoft.EventGrid.SubscriptionValidationEvent","eventTime":%q,"metadataVersion":"1",`+
		`"dataVersion":"1"}]`, uuid.NewString(), s.lowerCaseSource(), code, s.openURL(code), now)
	header := s.header("SubscriptionValidation", "1")
	header["content-type"] = []string{"application/json; charset=utf-8"}
	response = s.request(ctx, http.MethodPost, body, header)
	var members map[string]any // not a struct: encoding/json accepts a capital v there
	switch {
	case response.status != http.StatusOK:
		return response, fmt.Sprintf("the status is %d: %s", response.status, response.body)
	case !response.sized:
		return response, "the response has no Content-Length"
	case json.Unmarshal([]byte(response.body), &members) != nil:
		return response, "the response is no JSON object: " + response.body
	case members["validationResponse"] != code:
		return response, "validationResponse is not the code: " + response.body
	}
	return response, ""
}

// openURL is the URL that validates the endpoint, too, when a person opens it.
func (s *azureSubscription) openURL(code string) string {
	return fmt.Sprintf("https://rp-westeurope.eventgrid.azure.net:553/eventsubscriptions/%s/validate?id=%s&t=%s"+
		"&apiVersion=2020-10-15-preview&token=%s", s.name, code, time.Now().UTC().Format(azureTime), uuid.NewString())
}

// lowerCaseSource has the provider in lower case, as validation events have it: microsoft.eventgrid/topics/NAME.
func (s *azureSubscription) lowerCaseSource() string {
	before, rest, found := strings.Cut(s.source, "/providers/")
	provider, kind, _ := strings.Cut(rest, "/")
	if !found {
		return s.source
	}
	return before + "/providers/" + strings.ToLower(provider) + "/" + kind
}

// validateCloud requests the permission to deliver. The status of the response has no meaning, except for 405. Sources:
// Microsoft, Endpoint validation with CloudEvents schema, 2026-02-17, and CNCF, HTTP 1.1 Web Hooks for Event Delivery
// 1.0.1, section 4.
func (s *azureSubscription) validateCloud(ctx context.Context) (response azureResponse, problem string) {
	const origin = "eventgrid.azure.net"
	header := http.Header{"webhook-request-origin": {origin}}
	if !s.namespace {
		header["webhook-request-callback"] = []string{s.openURL(uuid.NewString())}
	}
	response = s.request(ctx, http.MethodOptions, "", header)
	allowed := response.header.Get("WebHook-Allowed-Origin")
	switch {
	case response.status == 0 || response.status == http.StatusMethodNotAllowed:
		return response, fmt.Sprintf("the status is %d: %s", response.status, response.body)
	case allowed != origin && allowed != "*":
		return response, fmt.Sprintf("the allowed origin is %q, the status is %d: %s", allowed, response.status,
			response.body)
	case response.header.Get("WebHook-Allowed-Rate") == "":
		return response, "there is no allowed rate"
	}
	return response, ""
}

// remove ends the deliveries and sends the notice of the deletion, in the same form as an event.
func (s *azureSubscription) remove(ctx context.Context) azureResponse {
	if s.cancel != nil {
		s.end()
	}
	const kind = "Microsoft.EventGrid.SubscriptionDeletedEvent"
	id, now := uuid.NewString(), time.Now().UTC().Format(azureTime)
	data := fmt.Sprintf(`{"eventSubscriptionId":"%s/providers/Microsoft.EventGrid/eventSubscriptions/%s"}`, s.source,
		s.name)
	text := fmt.Sprintf(`{"id":%q,"topic":%q,"subject":"","data":%s,"eventType":%q,"eventTime":%q,"metadataVersion":"1",`+
		`"dataVersion":"1"}`, id, s.source, data, kind, now)
	if s.schema == azureCloud {
		text = fmt.Sprintf(`{"id":%q,"source":%q,"type":%q,"specversion":"1.0","time":%q,"data":%s}`, id, s.source, kind,
			now, data)
	}
	media, body := s.envelope([]string{text})
	header := s.header("SubscriptionDeletion", "1")
	header["aeg-delivery-count"], header["content-type"] = []string{"0"}, []string{media}
	return s.request(ctx, http.MethodPost, body, header)
}
