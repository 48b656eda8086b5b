package message

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"postrider/internal/jsonscan"
)

// PagerDuty's limits: characters of a summary and of a deduplication key, bytes of a request (512 KB).
const (
	pagerDutySummary = 1024
	pagerDutyKey     = 255
	pagerDutyBytes   = 512_000
)

type pagerDutyEvent struct {
	RoutingKey  string           `json:"routing_key"`
	EventAction string           `json:"event_action"`
	DedupKey    string           `json:"dedup_key"`
	Client      string           `json:"client"`
	Payload     pagerDutyPayload `json:"payload"`
	Links       []pagerDutyLink  `json:"links,omitempty"`
}

type pagerDutyPayload struct {
	Summary       string                     `json:"summary"`
	Source        string                     `json:"source"`
	Severity      string                     `json:"severity"`
	Timestamp     string                     `json:"timestamp,omitempty"`
	Component     string                     `json:"component,omitempty"`
	Group         string                     `json:"group,omitempty"`
	Class         string                     `json:"class"`
	CustomDetails map[string]json.RawMessage `json:"custom_details"`
}

type pagerDutyLink struct {
	Href string `json:"href"`
	Text string `json:"text"`
}

// pagerDuty writes an event of the Events API v2. The end of a problem or probation resolves its beginning.
//
// Source: PagerDuty, Send an alert event (https://developer.pagerduty.com/docs/events-api-v2/trigger-events/), and
// Events API v2 overview (https://developer.pagerduty.com/docs/events-api-v2/overview/).
func pagerDuty(n *notice, t text, routingKey string) ([]byte, error) {
	summary := t.Title
	if response := n.response(); response != "" && !strings.Contains(summary, response) {
		summary += ": " + response
	}
	e := pagerDutyEvent{
		RoutingKey: routingKey, EventAction: "trigger", DedupKey: n.dedupKey(), Client: "postrider",
		Payload: pagerDutyPayload{
			Summary: cut(summary, pagerDutySummary), Severity: n.severity(), Timestamp: n.Time.String(),
			Source:    cut(cmp.Or(n.data.EndpointBaseURL, n.Subject, n.Source, "postrider").String(), pagerDutySummary),
			Component: n.data.Subscription.String(), Group: n.data.Topic.String(), Class: n.Type.String(),
		},
	}
	if n.ended() {
		e.EventAction = "resolve"
	}
	if t.Link != "" {
		e.Links = []pagerDutyLink{{t.Link, "Open in postrider"}}
	}
	e.Payload.CustomDetails = details(n, t, true)
	body, err := jsonscan.Encode(e)
	if err != nil || len(body) <= pagerDutyBytes {
		return body, err
	}
	e.Payload.CustomDetails = details(n, t, false)
	return jsonscan.Encode(e)
}

// details are the meaning, the command, and the members of the data, or only the facts, which are short.
func details(n *notice, t text, whole bool) map[string]json.RawMessage {
	list := map[string]json.RawMessage{}
	if whole {
		_ = json.Unmarshal(n.Raw, &list) // without data, or if it is no object: none
	}
	if list == nil { // the data is null
		list = map[string]json.RawMessage{}
	}
	add := func(name, value string) {
		if value != "" {
			list[name] = jsonscan.MustEncode(value)
		}
	}
	add("meaning", t.Meaning)
	add("command", t.Command)
	if !whole {
		for _, f := range t.Facts {
			add(f.Label, f.Value)
		}
	}
	return list
}

func (n *notice) ended() bool { return n.Type == problemEnded || n.Type == probationEnded }

// dedupKey is the same for the beginning and the end of a problem or probation. For other notices it is the event's id,
// so that a repeated request causes no second alert.
func (n *notice) dedupKey() string {
	key := n.ID.String()
	switch d := &n.data; n.Type {
	case problemStarted, problemEnded:
		key = cmp.Or(d.ProblemID, n.Subject, n.ID).String()
	case probationStarted, probationEnded:
		key = "probation " + cmp.Or(d.ProbationID, n.Subject, n.Source).String() // summed: only its extent is known
	}
	if len(key) <= pagerDutyKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// severity is one of PagerDuty's four.
func (n *notice) severity() string {
	switch n.Type {
	case deliveryDropped:
		return "critical" // the event is lost
	case deadLetterCreated, exportAbandoned, problemStarted:
		return "error"
	case probationStarted, subscriptionExpired:
		return "warning"
	}
	return "info"
}
