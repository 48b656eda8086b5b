package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// receivedRequest is one request.
type receivedRequest struct {
	at     time.Time
	header http.Header
	body   []byte
	events []json.RawMessage
	status int
}

// eventsIn are the events of a delivery: those of an array, or the one object. A body that is neither counts as one
// event without a name. A CloudEvent in binary mode has its attributes in headers.
func eventsIn(header http.Header, body []byte) (list []json.RawMessage) {
	trimmed := bytes.TrimSpace(body)
	switch {
	case header.Get("Ce-Id") != "":
		return []json.RawMessage{binaryEvent(header, trimmed)}
	case json.Unmarshal(trimmed, &list) == nil:
		return list
	case json.Valid(trimmed):
		return []json.RawMessage{trimmed}
	}
	return []json.RawMessage{nil}
}

func binaryEvent(header http.Header, data []byte) json.RawMessage {
	e := rest.Object{}
	for name, values := range header {
		if attribute, ok := strings.CutPrefix(strings.ToLower(name), "ce-"); ok {
			e[attribute] = values[0]
			// CloudEvents, HTTP Protocol Binding 1.0.2, section 3.1.3.2
			if plain, err := url.PathUnescape(values[0]); err == nil {
				e[attribute] = plain
			}
		}
	}
	if json.Valid(data) {
		e["data"] = json.RawMessage(data)
	}
	encoded, _ := terminal.EncodePlainly(e) // of texts and valid JSON
	return encoded
}

// receivedEvent is an event as -o json prints it.
type receivedEvent struct {
	At           time.Time       `json:"at"`
	Subscription string          `json:"subscription"`
	Attempt      int             `json:"attempt"`
	EventID      string          `json:"eventId"`
	EventType    string          `json:"eventType"`
	Subject      string          `json:"subject"`
	Status       int             `json:"status"`
	DurationMs   float64         `json:"durationMs"`
	Event        json.RawMessage `json:"event"`
}

// described are the events of a request, which may be 0.
func (r *receivedRequest) described(took time.Duration) (list []receivedEvent) {
	made, _ := strconv.Atoi(r.header.Get("Aeg-Delivery-Count"))
	for _, event := range r.events {
		var n struct{ ID, Type, EventType, Subject string }
		_ = json.Unmarshal(event, &n)
		list = append(list, receivedEvent{
			At: r.at.UTC(), Subscription: r.header.Get("Aeg-Subscription-Name"), Attempt: made + 1, EventID: n.ID,
			EventType: cmp.Or(n.Type, n.EventType), Subject: n.Subject, Status: r.status, DurationMs: millis(took), Event: event,
		})
	}
	return list
}

// arrived prints a line for each event.
func (l *listener) arrived(got *receivedRequest) {
	if l.Output != "table" {
		return
	}
	var lines strings.Builder
	for _, e := range got.described(0) {
		fmt.Fprintf(&lines, "%s --> %s %s %s", terminal.Clock(got.at), orDash(e.EventType), orDash(e.Subject),
			orDash(e.EventID))
		if e.Subscription != "" {
			fmt.Fprintf(&lines, " (%s, attempt %d)", terminal.Cell(e.Subscription), e.Attempt)
		}
		lines.WriteByte('\n')
	}
	if l.Verbose {
		lines.WriteString(indented(got.body) + "\n")
	}
	fmt.Print(lines.String()) // in one write: requests may be concurrent
}

func orDash(s string) string { return cmp.Or(terminal.Cell(s), "-") }

// indented is a body for a terminal.
func indented(body []byte) string {
	var pretty bytes.Buffer
	if json.Indent(&pretty, body, "    ", "  ") != nil {
		return "    " + terminal.PlainLines(string(body))
	}
	return "    " + terminal.EscapeControls(pretty.String())
}

// answered prints the response: a line, or an object for each event. failure says why a request was not forwarded.
func (l *listener) answered(got *receivedRequest, failure string, took time.Duration) {
	if l.Output == "table" {
		line := fmt.Sprintf("%s <-- %d %s in %.1f ms", terminal.Clock(time.Now()), got.status, http.StatusText(got.status),
			millis(took))
		if l.ForwardTo != nil {
			line += " from " + l.ForwardTo.String()
		}
		if failure != "" {
			line += ": " + terminal.OneLine(failure)
		}
		fmt.Println(line)
		return
	}
	var lines strings.Builder
	for _, event := range got.described(took) {
		text, _ := terminal.EncodeLine(l.Output, event) // of texts, numbers and valid JSON
		lines.WriteString(text)
	}
	fmt.Print(lines.String()) // in one write: requests may be concurrent
}
