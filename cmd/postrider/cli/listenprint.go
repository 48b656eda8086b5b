package cli

import (
	"bytes"
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

// eventsIn are the events of a delivery: those of an array, or the one object. What is none of them is told as one
// event without a name. A CloudEvent in binary mode has its attributes in headers.
func eventsIn(header http.Header, body []byte) []json.RawMessage {
	var list []json.RawMessage
	trimmed := bytes.TrimSpace(body)
	switch {
	case header.Get("Ce-Id") != "":
		return []json.RawMessage{binaryEvent(header, trimmed)}
	case len(trimmed) > 0 && trimmed[0] == '[' && json.Unmarshal(trimmed, &list) == nil:
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

// eventName is what a line says of an event.
type eventName struct {
	ID        string `json:"id"`
	Type      string `json:"type"`
	EventType string `json:"eventType"`
	Subject   string `json:"subject"`
}

func nameOf(event json.RawMessage) (n eventName) {
	_ = json.Unmarshal(event, &n)
	if n.Type == "" {
		n.Type = n.EventType
	}
	return n
}

// attemptOf is the number of this delivery attempt; 1 where the header does not say.
func attemptOf(h http.Header) int {
	made, _ := strconv.Atoi(h.Get("Aeg-Delivery-Count"))
	return made + 1
}

// arrived prints a line for each event.
func (l *listener) arrived(got *receivedRequest) {
	if l.form != "table" {
		return
	}
	var lines strings.Builder
	for _, event := range got.events {
		n := nameOf(event)
		fmt.Fprintf(&lines, "%s --> %s %s %s", terminal.Clock(got.at), orDash(n.Type), orDash(n.Subject), orDash(n.ID))
		if name := got.request.Header.Get("Aeg-Subscription-Name"); name != "" {
			fmt.Fprintf(&lines, " (%s, attempt %d)", terminal.Cell(name), attemptOf(got.request.Header))
		}
		lines.WriteByte('\n')
	}
	if l.verbose {
		lines.WriteString(indented(got.body) + "\n")
	}
	_, _ = l.out.Write([]byte(lines.String()))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return terminal.Cell(s)
}

// indented is a body for a terminal.
func indented(body []byte) string {
	var pretty bytes.Buffer
	if json.Indent(&pretty, body, "    ", "  ") != nil {
		return "    " + terminal.PlainLines(string(body))
	}
	return "    " + terminal.EscapeControls(pretty.String())
}

// receivedEvent is an event as -o json prints it.
type receivedEvent struct {
	At           string          `json:"at"`
	Subscription string          `json:"subscription"`
	Attempt      int             `json:"attempt"`
	EventID      string          `json:"eventId"`
	EventType    string          `json:"eventType"`
	Subject      string          `json:"subject"`
	Status       int             `json:"status"`
	DurationMs   float64         `json:"durationMs"`
	Event        json.RawMessage `json:"event"`
}

// answered prints the answer: a line, or an object for each event.
func (l *listener) answered(got *receivedRequest, answer listenAnswer, took time.Duration) {
	if l.form == "table" {
		line := fmt.Sprintf("%s <-- %d %s in %.1f ms", terminal.Clock(time.Now()), answer.status,
			http.StatusText(answer.status), millis(took))
		if l.client != nil {
			line += " from " + l.forwardTo
		}
		if answer.why != "" {
			line += ": " + terminal.OneLine(answer.why)
		}
		l.out.Line(line)
		return
	}
	var lines strings.Builder
	for _, event := range got.events {
		n := nameOf(event)
		text, err := terminal.EncodeLine(l.form, receivedEvent{
			At: got.at.UTC().Format(time.RFC3339Nano), Subscription: got.request.Header.Get("Aeg-Subscription-Name"),
			Attempt: attemptOf(got.request.Header),
			EventID: n.ID, EventType: n.Type, Subject: n.Subject, Status: answer.status, DurationMs: millis(took), Event: event,
		})
		if err == nil {
			lines.WriteString(text)
		}
	}
	_, _ = l.out.Write([]byte(lines.String()))
}
