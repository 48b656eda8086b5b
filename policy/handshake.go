package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// How a validation handshake goes on. Source: Microsoft, Endpoint validation with Event Grid event schema, 2024-09-25:
// an answer is waited for for 30 s, and asked for again after 5 s. How often it does not say; three times is ours.
const (
	HandshakeTries   = 3
	HandshakeTimeout = 30 * time.Second
	HandshakePause   = 5 * time.Second
)

// HandshakeOutcome is what one answer means for a handshake.
type HandshakeOutcome string

// HandshakeAwaits: the endpoint is there, and somebody has to open validationUrl. HandshakeRejected: this request came
// to nothing.
const (
	HandshakeAccepted HandshakeOutcome = "accepted"
	HandshakeAwaits   HandshakeOutcome = "awaits"
	HandshakeRejected HandshakeOutcome = "refused"
)

// HandshakeResponse is what one request of a handshake met.
type HandshakeResponse struct {
	// Err says why there was no answer, or only a part of one; "" = there was.
	Err string
	// Cause is the original error of Err, for the log; nil = none is known.
	Cause  error
	Status int
	Body   []byte
	// AllowedOrigin and AllowedRate are the values of the headers WebHook-Allowed-Origin and WebHook-Allowed-Rate.
	AllowedOrigin, AllowedRate []string
	// Conceal takes secrets out of what is quoted of it; nil = there are none.
	Conceal func(string) string
}

// HandshakeByCode judges the answer to a validation event: status 200 and the code as validationResponse, whatever that
// name's case, which the samples do not agree on. 202, which acknowledges a delivery, does not. Any other 200 shows
// that the endpoint is there. Source: Microsoft, Endpoint validation with Event Grid event schema, 2024-09-25.
func HandshakeByCode(a HandshakeResponse, code string) (outcome HandshakeOutcome, why string) {
	var body struct {
		ValidationResponse string `json:"validationResponse"`
	}
	switch {
	case a.Err != "":
		return HandshakeRejected, "no answer: " + a.Err
	case a.Status != 200:
		return HandshakeRejected, fmt.Sprintf("answered %d, and only 200 with the code counts", a.Status)
	case json.Unmarshal(bytes.TrimPrefix(a.Body, []byte("\xef\xbb\xbf")), &body) != nil:
		return HandshakeAwaits, "answered 200 without the code: its body is not a JSON object with a validationResponse"
	case body.ValidationResponse == "":
		return HandshakeAwaits, "answered 200 without the code: its body has no validationResponse"
	case body.ValidationResponse != code:
		return HandshakeAwaits, "answered 200 with another validationResponse than the code"
	}
	return HandshakeAccepted, "validated: answered 200 with the code"
}

// HandshakeByOrigin judges the answer to a request for permission. The header alone counts: it names the origin that
// asked, or is "*". Where validationUrl may be opened instead (callback), 200 without the header shows that the
// endpoint is there. An allowed rate is told and not obeyed. Source: CNCF, HTTP 1.1 Web Hooks for Event Delivery 1.0.1,
// section 4; Microsoft, Event Grid namespace webhook validation, 2024.
func HandshakeByOrigin(a HandshakeResponse, origin string, callback bool) (outcome HandshakeOutcome, why string) {
	if a.Err != "" {
		return HandshakeRejected, "no answer: " + a.Err
	}
	for _, allowed := range a.AllowedOrigin {
		if allowed = strings.TrimSpace(allowed); allowed == "*" || strings.EqualFold(allowed, origin) {
			return HandshakeAccepted, fmt.Sprintf("validated: answered %d with WebHook-Allowed-Origin: %s%s", a.Status,
				allowed, a.rate())
		}
	}
	switch {
	case len(a.AllowedOrigin) > 0:
		return HandshakeRejected, fmt.Sprintf("answered %d with WebHook-Allowed-Origin %q, which is not %s", a.Status,
			a.quoted(a.AllowedOrigin[0]), origin)
	case a.Status == 200 && callback:
		return HandshakeAwaits, "answered 200 without WebHook-Allowed-Origin"
	}
	return HandshakeRejected, fmt.Sprintf("answered %d without WebHook-Allowed-Origin", a.Status)
}

// HandshakeAcknowledged judges the answer to a word that asks for nothing: any success will do.
func HandshakeAcknowledged(a HandshakeResponse) (outcome HandshakeOutcome, why string) {
	switch {
	case a.Err != "":
		return HandshakeRejected, "no answer: " + a.Err
	case a.Status < 200 || a.Status > 299:
		return HandshakeRejected, fmt.Sprintf("answered %d", a.Status)
	}
	return HandshakeAccepted, fmt.Sprintf("told: answered %d", a.Status)
}

func (a *HandshakeResponse) rate() string {
	if len(a.AllowedRate) == 0 {
		return ""
	}
	return fmt.Sprintf(" and WebHook-Allowed-Rate %q, which is not obeyed", a.quoted(a.AllowedRate[0]))
}

// quoted keeps a stranger's text from filling a log, and our secrets out of it, which nobody finds once they are cut.
func (a *HandshakeResponse) quoted(s string) string {
	const most = 100
	if a.Conceal != nil {
		s = a.Conceal(s)
	}
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
