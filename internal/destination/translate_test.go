package destination_test

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"postrider/internal/destination"
	"postrider/policy"
)

const (
	sb    = destination.ServiceBusQueue
	eh    = destination.EventHub
	queue = destination.StorageQueue
	relay = destination.HybridConnection
)

// detail is a body as Service Bus and Event Hubs have it.
func detail(code, text string) string {
	return "<Error><Code>" + code + "</Code><Detail>" + text +
		" TrackingId:7d_G1, SystemTracker:shop.servicebus.windows.net:quota, Timestamp:2026-11-29T10:00:00</Detail></Error>"
}

// storage is a body as Azure Storage has it.
func storage(code, text string) string {
	return "\uFEFF<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>" + code + "</Code><Message>" + text +
		"\nRequestId:8f</Message><AuthenticationErrorDetail>sig=c2VjcmV0</AuthenticationErrorDetail></Error>"
}

var translations = []struct {
	kind   destination.Type
	status int
	body   string
	result string // a status or an error
	text   string // the beginning
}{
	{sb, 201, "", "200", ""},
	{sb, 204, "", "200", ""},
	{eh, 202, "", "200", ""},
	{queue, 201, "<QueueMessagesList/>", "200", ""},

	{sb, 403, detail("403", "The received message (size:262279 bytes) exceeds the limit (262144)."), "413", ""},
	{sb, 403, detail("403", "Message size is larger than allowed."), "413", ""},
	{eh, 400, detail("400", "The message is too large."), "413", ""},
	{eh, 413, "", "413", "Event Hubs responded 413: Request Entity Too Large"},
	{
		queue, 400, storage("MessageTooLarge", "The message exceeds the maximum allowed size."), "413",
		"Storage Queue responded 400 (MessageTooLarge): The message exceeds the maximum allowed size. RequestId:8f",
	},
	{queue, 413, storage("RequestBodyTooLarge", "Too large."), "413", ""},

	{sb, 403, detail("403", "The queue has reached its maximum size limit."), "full", ""}, // no message is too large
	{
		sb, 403, detail("403", "The maximum entity size has been reached or exceeded for Queue: 'shop:orders'. QuotaType: "+
			"EntitySize"), "full", "Service Bus responded 403: The maximum entity size has been reached or exceeded for Queue",
	},
	{sb, 403, detail("403", "40300: Quota exceeded."), "full", "Service Bus responded 403 (40300): Quota exceeded."},
	{eh, 403, detail("403", "QuotaExceeded: The hub is full."), "full", "Event Hubs responded 403 (QuotaExceeded): The"},

	{sb, 403, detail("403", "Messaging entity 'sb://shop/orders' is currently disabled."), "disabled", ""},
	{eh, 400, detail("400", "The hub is disabled."), "disabled", ""},
	{queue, 409, storage("QueueDisabled", "The queue is disabled."), "disabled", ""},
	{queue, 403, storage("AccountIsDisabled", "The account is disabled."), "disabled", ""},

	{
		queue, 403, storage("AuthenticationFailed", "Server failed to authenticate the request."), "401",
		"Storage Queue responded 403 (AuthenticationFailed): Server failed to authenticate the request. RequestId:8f",
	},
	{queue, 401, storage("NoAuthenticationInformation", ""), "401", ""},
	{queue, 400, storage("InvalidAuthenticationInfo", ""), "401", ""},
	{
		sb, 403, detail("403", "40103: Invalid authorization token signature."), "401",
		"Service Bus responded 403 (40103): Invalid authorization token signature. TrackingId:7d_G1, ",
	},
	{eh, 401, detail("401", "InvalidSignature: The token has an invalid signature."), "401", ""},
	{relay, 401, "", "401", "Relay responded 401: Unauthorized"},

	{sb, 403, detail("403", "Ip has been prevented to connect to the endpoint."), "403", ""},
	{sb, 403, detail("403", "Public network access is disabled."), "403", ""},
	{sb, 403, detail("403", "'Send' claim is required. Resource:sb://shop/quota-disabled-full"), "403", ""},
	{sb, 403, "It isn't for you", "403", "Service Bus responded 403: It isn't for you"},
	{queue, 403, storage("AuthorizationPermissionMismatch", ""), "403", ""},
	{queue, 403, storage("AuthorizationFailure", "Disabled for this IP."), "403", ""},
	{relay, 403, "", "403", ""},

	{sb, 404, detail("404", "No service is hosted at the specified address."), "404", ""},
	{sb, 410, "", "404", "Service Bus responded 410: Gone"},
	{eh, 410, "", "404", ""},
	{queue, 404, storage("QueueNotFound", ""), "404", ""},
	{queue, 409, storage("QueueBeingDeleted", ""), "404", ""},
	{relay, 404, "", "404", ""},

	{sb, 429, "", "503", "Service Bus responded 429: Too Many Requests"},
	{sb, 503, "", "503", ""},
	{sb, 400, "Bad. SubCode=50009. Throttled.", "503", "Service Bus responded 400 (50009): Bad. SubCode=50009."},
	{sb, 403, detail("403", "50004: Throttled."), "503", ""},
	{eh, 500, detail("500", "The server was unable to process it. (ServerBusy, 50002)"), "503", ""},
	{queue, 500, storage("ServerBusy", ""), "503", ""},
	{relay, 503, "", "503", ""},

	{
		sb, 400, detail("400", "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that "+
			"have session support enabled can only receive messages that have the SessionId set."), "session", "",
	},
	{sb, 500, detail("500", "The queue requires a session."), "session", ""},

	{sb, 400, detail("400", "BrokerProperties cannot be read."), "400", ""},
	{queue, 400, storage("InvalidXmlDocument", ""), "400", "Storage Queue responded 400 (InvalidXmlDocument): "},
	{sb, 408, "", "408", ""},
	{eh, 504, "", "408", ""},
	{relay, 504, "", "408", ""},
	{queue, 500, storage("OperationTimedOut", ""), "408", ""},
	{sb, 500, detail("500", "OperationTimedOut: The operation timed out."), "408", ""},
	{sb, 500, "", "500", "Service Bus responded 500: Internal Server Error"},
	{queue, 500, storage("InternalError", ""), "500", ""},
	{queue, 502, "<html><h1>Bad &lt;Gateway&gt;</h1>\u0007\n</html>", "502", "Storage Queue responded 502: Bad <Gateway>"},
}

func TestTranslate(t *testing.T) {
	t.Parallel()
	for _, tt := range translations {
		got := form(t, tt.kind, bus(tt.kind)).Translate(tt.status, http.Header{}, []byte(tt.body))
		name := string(tt.kind) + " " + http.StatusText(tt.status) + " " + tt.body
		require.Equal(t, policy.ParseResult(tt.result), got.Result, name)
		require.True(t, strings.HasPrefix(got.Text, tt.text), "%s: %s", name, got.Text)
		require.Equal(t, tt.status < 300, got.Text == "", name)
		require.NotContains(t, got.Text, "c2VjcmV0")
	}
}

func TestTranslateUsesTheHeaderOfTheCode(t *testing.T) {
	t.Parallel()
	got := form(t, queue, bus(queue)).Translate(403, http.Header{"X-Ms-Error-Code": {"AuthenticationFailed"}}, nil)
	require.Equal(t, policy.Result{Status: 401}, got.Result)
	require.Equal(t, "Storage Queue responded 403 (AuthenticationFailed): Forbidden", got.Text)
}

func TestTranslateCutsTexts(t *testing.T) {
	t.Parallel()
	for _, body := range []string{strings.Repeat("é", 2048), strings.Repeat("x", 4096), strings.Repeat("\xffx", 400)} {
		got := form(t, sb, bus(sb)).Translate(401, http.Header{}, []byte(detail("401", "ExpiredToken: "+body)))
		require.LessOrEqual(t, len(got.Text), 300)
		require.Greater(t, len(got.Text), 290)
		require.True(t, utf8.ValidString(got.Text))
		require.Contains(t, got.Text, "… (check the clock of the database server)")
	}
	got := form(t, sb, bus(sb)).Translate(400, http.Header{}, []byte("Bad token sr=a&sig=abc%2B&se=1"))
	require.Equal(t, "Service Bus responded 400: Bad token sr=a&sig=***&se=1", got.Text)
}

func TestTranslateNamesTheClock(t *testing.T) {
	t.Parallel()
	at := func(off time.Duration) string { return signedAt.Add(off).UTC().Format(http.TimeFormat) }
	for _, tt := range []struct{ date, body, hint string }{
		{at(20 * time.Minute), "", " (check the clock of the database server: it is 20m0s behind)"},
		{at(-6 * time.Minute), "", " (check the clock of the database server: it is 6m0s ahead)"},
		{at(4 * time.Minute), "", ""},
		{"", "Request date header too old", " (check the clock of the database server)"},
		{"", "Signature not valid in the specified time frame", " (check the clock of the database server)"},
		{"", "ExpiredToken: The token is expired.", " (check the clock of the database server)"},
	} {
		for _, kind := range []destination.Type{sb, queue, relay} {
			p := bus(kind)
			p.PrimaryKey, p.SharedAccessKeyName = storageKey, "send"
			f := form(t, kind, p)
			f.Authorize(http.Header{}, nil, signedAt, false)
			got := f.Translate(401, http.Header{"Date": {tt.date}}, []byte(tt.body))
			require.True(t, strings.HasSuffix(got.Text, tt.hint), "%s: %s", tt.hint, got.Text)
			require.Equal(t, tt.hint != "", strings.Contains(got.Text, "clock"), got.Text)
			got = f.Translate(403, http.Header{"Date": {tt.date}}, nil)
			require.NotContains(t, got.Text, "clock")
		}
	}
	p := bus(queue)
	p.SharedAccessSignature = "sig=x"
	got := form(t, queue, p).Translate(401, http.Header{}, []byte("The signature has expired"))
	require.Contains(t, got.Text, " (check whether sharedAccessSignature has expired, and the clock of the database")
}

func TestTranslateResponsesOfListeners(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 201, 403, 410, 429, 504} {
		got := form(t, relay, bus(relay)).Translate(status, http.Header{"Via": {"1.1 shop"}}, []byte("quota full"))
		require.Equal(t, destination.Result{Result: policy.Result{Status: status}, Passed: true}, got)
	}
}

func TestTranslateRetryAfter(t *testing.T) {
	t.Parallel()
	date := signedAt.UTC().Format(http.TimeFormat)
	for _, tt := range []struct {
		header http.Header
		body   string
		want   time.Duration
	}{
		{http.Header{}, "", 0},
		{http.Header{"Retry-After": {"7"}}, "", 7 * time.Second},
		{http.Header{"Retry-After": {"7"}, "X-Ms-Retry-After-Ms": {"1500"}}, "", 1500 * time.Millisecond},
		{http.Header{"Retry-After": {"soon"}, "Date": {date}}, "", 0},
		{
			http.Header{"Date": {date}, "Retry-After": {signedAt.Add(time.Minute).UTC().Format(http.TimeFormat)}},
			"",
			time.Minute,
		},
		{http.Header{"Date": {date}, "Retry-After": {date}}, "", 0},
		{http.Header{}, "The request was throttled. Please wait 4 seconds and try again. (50002)", 4 * time.Second},
	} {
		require.Equal(t, tt.want, form(t, eh, bus(eh)).Translate(503, tt.header, []byte(tt.body)).RetryAfter)
	}
}
