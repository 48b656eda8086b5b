package message_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"postrider/internal/message"
	"postrider/internal/testdb"
)

const (
	base    = "https://events.example.com"
	billing = `"topic":"orders","subscription":"billing","description":"Invoices; #team-billing"`
)

// notices have the members that docs/operate/monitor.md describes.
var notices = []struct{ name, event string }{
	{"deadletter", notice("0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60", "deadLetter.created", `"count":1,`+billing+`,
		"reason":"MaxDeliveryAttemptsExceeded","deadLetterId":"0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60","deliveryId":4711,
		"eventId":"o-42","eventType":"Shop.OrderPlaced","attempts":30,"lastOutcome":"Busy","lastStatus":503,
		"endpointBaseUrl":"https://billing.example.com/events","retryPolicy":"ga-2021",
		"firstAttemptAt":"2026-11-29T08:00:00.123456Z","deadLetteredAt":"2026-11-29T10:15:00.123456Z"`)},
	{"deadletters", notice("7", "deadLetter.created", `"count":12345,"summed":true,`+billing+`,
		"reasons":{"TimeToLiveExceeded":345,"MaxDeliveryAttemptsExceeded":12000},
		"firstAt":"2026-11-29T10:14:59.5Z","lastAt":"2026-11-29T10:15:00Z"`)},
	{"exportabandoned", notice("8/exportAbandoned", "deadLetter.exportAbandoned", `"count":1,`+billing+`,
		"reason":"403 Forbidden: <AccessDenied> & more","deadLetterId":"0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d61"`)},
	{"dropped", notice("9/1", "delivery.dropped", `"count":1,`+billing+`,"reason":"UndeliverableDueToHttpBadRequest",
		"deliveryId":4712,"eventId":"o-43","eventType":"Shop.OrderPaid","lastOutcome":"BadRequest","lastStatus":400`)},
	{"probationstarted", notice("10", "probation.started", `"count":1,"topic":"orders","reason":"Timeout",
		"scope":"endpoint","probationId":"5f0c4d7e-9a53-1b8e-7d62-90c4e1f2a3b5",
		"endpointBaseUrl":"https://billing.example.com/events","since":"2026-11-29T10:15:00Z",
		"until":"2026-11-29T10:20:00Z","subscriptionCount":7,"subscriptions":["/topics/orders/subscriptions/a",
		"/topics/orders/subscriptions/b","/topics/orders/subscriptions/c","/topics/orders/subscriptions/d",
		"/topics/orders/subscriptions/e","/topics/orders/subscriptions/f"]`)},
	{"probationended", notice("11", "probation.ended", `"count":1,`+billing+`,"reason":"Timeout",
		"scope":"endpoint","probationId":"5f0c4d7e-9a53-1b8e-7d62-90c4e1f2a3b5",
		"endpointBaseUrl":"https://billing.example.com/events","since":"2026-11-29T10:15:00Z","subscriptionCount":1,
		"subscriptions":["/topics/orders/subscriptions/billing"]`)},
	{"expired", notice("12", "subscription.expired", `"count":1,`+billing+`,
		"endpointBaseUrl":"https://billing.example.com/events","expirationTimeUtc":"2026-11-29T10:15:00Z"`)},
	{"problemstarted", notice("13", "problem.started", `"count":1,`+billing+`,
		"problemId":"20408d67-9879-8087-84b6-7e6c73f19dce","outcome":"Busy","status":503,"response":"Service Unavailable",
		"since":"2026-11-29T10:15:00Z","failures":120,"pending":3400,"openDeadLetters":2,
		"endpointBaseUrl":"https://billing.example.com/events",
		"command":"postrider problem show 20408d67-9879-8087-84b6-7e6c73f19dce"`)},
	{"problemended", notice("14", "problem.ended", `"count":1,`+billing+`,
		"problemId":"20408d67-9879-8087-84b6-7e6c73f19dce","outcome":"Busy","status":503,
		"since":"2026-11-29T10:15:00Z","recoveredAt":"2026-11-29T10:25:00Z","failures":120,"reason":"recovered",
		"command":"postrider problem show 20408d67-9879-8087-84b6-7e6c73f19dce"`)},
	{"ownprobationstarted", notice("16", "probation.started", `"count":1,`+billing+`,"reason":"Busy",
		"scope":"event_subscription","probationId":"81d90a36-2c4f-6be7-15a8-3e7b20d4c6f9",
		"endpointBaseUrl":"https://billing.example.com/events","since":"2026-11-29T10:15:00Z",
		"until":"2026-11-29T10:15:10Z","subscriptionCount":1,"subscriptions":["/topics/orders/subscriptions/billing"]`)},
	{"ownprobationended", notice("17", "probation.ended", `"count":1,`+billing+`,"reason":"Busy",
		"scope":"event_subscription","probationId":"81d90a36-2c4f-6be7-15a8-3e7b20d4c6f9",
		"endpointBaseUrl":"https://billing.example.com/events","since":"2026-11-29T10:15:00Z","subscriptionCount":1,
		"subscriptions":["/topics/orders/subscriptions/billing"]`)},
	{"unknown", notice("15", "TestEvent", `"hello":"<!channel> *you*","n":1`)},
}

func notice(id, kind, data string) string {
	return `{"specversion":"1.0","id":"` + id + `","type":"postrider.` + kind + `","source":"/topics/orders",
		"subject":"/topics/orders/subscriptions/billing","time":"2026-11-29T10:15:00.5Z",
		"datacontenttype":"application/json","data":{` + data + `}}`
}

func written(t *testing.T, cloudEvent string, s message.Settings) []byte {
	t.Helper()
	body, err := message.Write([]byte(cloudEvent), s)
	require.NoError(t, err)
	require.True(t, json.Valid(body))
	return body
}

// The golden files have each type in each format.
func TestMessageOfEachTypeAndFormat(t *testing.T) {
	t.Parallel()
	for _, row := range notices {
		var all bytes.Buffer
		for _, format := range message.Formats[1:] {
			body := written(t, row.event, message.Settings{Format: message.Format(format), RoutingKey: "key", BaseURL: base})
			fmt.Fprintf(&all, "# %s\n", format)
			require.NoError(t, json.Indent(&all, body, "", "  "))
			all.WriteByte('\n')
		}
		testdb.Golden(t, row.name+".golden", all.String())
	}
}

func TestMessageWithoutBaseURLHasNoLink(t *testing.T) {
	t.Parallel()
	for _, row := range notices {
		for _, format := range message.Formats[1:] {
			body := string(written(t, row.event, message.Settings{Format: message.Format(format)}))
			require.NotContains(t, body, "/ui/")
			require.NotContains(t, body, "Open in postrider")
		}
	}
}

// pagerDuty has what identifies an alert.
type pagerDuty struct {
	Action   string `json:"event_action"`
	DedupKey string `json:"dedup_key"`
	Payload  struct {
		Severity, Summary string
		CustomDetails     map[string]any `json:"custom_details"`
	}
}

func paged(t *testing.T, event string) (p pagerDuty) {
	t.Helper()
	require.NoError(t, json.Unmarshal(written(t, event, message.Settings{Format: message.PagerDuty}), &p))
	return p
}

// The end of a problem or probation resolves the alert of its beginning; other notices are alerts of their own.
func TestPagerDutyResolvesWhatItTriggered(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ started, ended string }{
		{notices[7].event, notices[8].event},
		{notices[4].event, notices[5].event},
		{notices[9].event, notices[10].event},
		{
			notice("20", "probation.started", `"count":30,"summed":true`),
			notice("21", "probation.ended", `"count":30,"summed":true`),
		},
	} {
		started, ended := paged(t, row.started), paged(t, row.ended)
		require.Equal(t, "trigger", started.Action)
		require.Equal(t, "resolve", ended.Action)
		require.Equal(t, started.DedupKey, ended.DedupKey)
	}
	first := paged(t, notices[0].event)
	require.Equal(t, "0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60", first.DedupKey)
	require.Equal(t, "error", first.Payload.Severity)
	require.Equal(t, "critical", paged(t, notices[3].event).Payload.Severity)
	require.NotEqual(t, paged(t, notices[4].event).DedupKey, paged(t, notices[9].event).DedupKey,
		"two probations of one URL since the same time")
}

// Each format keeps its limits whatever the notice has, and shows that a text was cut.
func TestMessagesAreCutToTheLimitsOfTheirService(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(strings.Repeat("🔥", 30)+"<&>", 15_000)
	for _, event := range []string{
		notice("1", "problem.started", `"topic":"orders","subscription":"billing","problemId":"`+long+`","response":"`+long+
			`","description":"`+long+`","reason":"`+long+`","endpointBaseUrl":"`+long+`","command":"`+long+`"`),
		notice("1", "new", `"text":"`+long+`"`),
	} {
		var slack struct {
			Text   string
			Blocks []struct {
				Type string
				Text struct{ Text string }
			}
		}
		require.NoError(t, json.Unmarshal(written(t, event, message.Settings{Format: message.Slack}), &slack))
		require.LessOrEqual(t, utf8.RuneCountInString(slack.Text), 3000)
		whole := slack.Text
		for _, block := range slack.Blocks {
			most := map[string]int{"header": 150, "section": 3000}[block.Type]
			require.LessOrEqual(t, utf8.RuneCountInString(block.Text.Text), most, block.Type)
			require.NotEmpty(t, block.Text.Text)
			whole += block.Text.Text
		}
		require.Contains(t, whole, "…")
		require.NotContains(t, strings.NewReplacer("&amp;", "", "&lt;", "", "&gt;", "").Replace(
			slack.Blocks[len(slack.Blocks)-1].Text.Text), "&", "no escape is cut in two")

		teams := written(t, event, message.Settings{Format: message.Teams})
		require.LessOrEqual(t, len(teams), 28_000)
		require.Contains(t, string(teams), "…")

		raw := written(t, event, message.Settings{Format: message.PagerDuty})
		require.LessOrEqual(t, len(raw), 512_000)
		p := paged(t, event)
		require.LessOrEqual(t, utf8.RuneCountInString(p.Payload.Summary), 1024)
		require.LessOrEqual(t, len(p.DedupKey), 255)
		require.NotEmpty(t, p.Payload.CustomDetails)
	}
}

// Values from events and endpoints are no markup: no mention, link or line of another's making.
func TestValuesAreNoMarkup(t *testing.T) {
	t.Parallel()
	event := notice("1", "deadLetter.created", `"topic":"orders","subscription":"billing",
		"description":"<!channel> <https://evil.example|here>\n*Reason:* fine","reason":"[a](https://evil.example)"`)
	slack := string(written(t, event, message.Settings{Format: message.Slack}))
	require.NotContains(t, slack, "<!channel>")
	require.NotContains(t, slack, "<https://evil")
	require.NotContains(t, slack, `\n*Reason:* fine`)
	teams := string(written(t, event, message.Settings{Format: message.Teams}))
	require.NotContains(t, teams, `"TextBlock"`)
	require.NotContains(t, teams, "FactSet")
}

// Data of another shape leaves facts out. It never prevents the message.
func TestUnexpectedDataIsStillAMessage(t *testing.T) {
	t.Parallel()
	for _, event := range []string{
		`{"id":1,"type":"postrider.problem.started"}`,
		`{"id":"1","type":"postrider.problem.started","data":null}`,
		`{"id":"1","type":"postrider.problem.started","data":"text"}`,
		`{"id":"1","type":"postrider.problem.started","data":[1]}`,
		`{"id":"1","type":"x","data":{"topic":{},"count":"many","status":{},"subscriptions":7,"reasons":[]}}`,
	} {
		for _, format := range message.Formats[1:] {
			require.NotEmpty(t, written(t, event, message.Settings{Format: message.Format(format)}))
		}
	}
	for _, event := range []string{"", "7", "[]", `{"id":"1"}`} {
		_, err := message.Write([]byte(event), message.Settings{Format: message.Slack})
		require.Error(t, err, event)
	}
	_, err := message.Write([]byte(notices[0].event), message.Settings{})
	require.ErrorContains(t, err, "no format")
}
