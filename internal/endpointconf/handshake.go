package endpointconf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// A validation handshake waits 30 s for a response and repeats the request after 5 s (Microsoft, Endpoint validation
// with Event Grid event schema, 2024-09-25). That page does not say how often; three times is ours.
const (
	HandshakeTries   = 3
	HandshakeTimeout = 30 * time.Second
	HandshakePause   = 5 * time.Second
)

// HandshakeOutcome is what one response means for a handshake.
type HandshakeOutcome string

// HandshakeAwaits: the endpoint exists, and a person has to open validationUrl. HandshakeRejected: this request failed.
const (
	HandshakeAccepted HandshakeOutcome = "accepted"
	HandshakeAwaits   HandshakeOutcome = "awaits"
	HandshakeRejected HandshakeOutcome = "rejected"
)

// HandshakeResponse is the response to one request of a handshake.
type HandshakeResponse struct {
	// Err says why there was no complete response; "" = there was.
	Err string
	// Cause is the original error of Err, for the log; nil = none is known.
	Cause  error
	Status int
	Body   []byte
	// AllowedOrigin and AllowedRate are the values of the headers WebHook-Allowed-Origin and WebHook-Allowed-Rate.
	AllowedOrigin, AllowedRate []string
	// Conceal removes secrets from quoted text; nil = there are none.
	Conceal func(string) string
}

// HandshakeByCode checks the response to a validation event: status 200 and the code as validationResponse, a name that
// the samples write in different cases. 202, which acknowledges a delivery, fails. Any other 200 shows that the
// endpoint exists. Source: Microsoft, Endpoint validation with Event Grid event schema, 2024-09-25.
func HandshakeByCode(a HandshakeResponse, code string) (outcome HandshakeOutcome, why string) {
	var body struct {
		ValidationResponse string `json:"validationResponse"`
	}
	switch {
	case a.Err != "":
		return HandshakeRejected, "no response: " + a.Err
	case a.Status != 200:
		return HandshakeRejected, fmt.Sprintf("responded %d, and only 200 with the code counts", a.Status)
	case json.Unmarshal(bytes.TrimPrefix(a.Body, []byte("\xef\xbb\xbf")), &body) != nil:
		return HandshakeAwaits, "responded 200 without the code: its body is not a JSON object with a validationResponse"
	case body.ValidationResponse == "":
		return HandshakeAwaits, "responded 200 without the code: its body has no validationResponse"
	case body.ValidationResponse != code:
		return HandshakeAwaits, "responded 200 with another validationResponse than the code"
	}
	return HandshakeAccepted, "validated: responded 200 with the code"
}

// HandshakeByOrigin checks the response to a request for permission by its header, which must be the requesting origin
// or "*". If validationUrl may be opened instead (callback), 200 without the header shows that the endpoint exists. An
// allowed rate is reported and not applied. Source: CNCF, HTTP 1.1 Web Hooks for Event Delivery 1.0.1, section 4;
// Microsoft, Event Grid namespace webhook validation, 2024.
func HandshakeByOrigin(a HandshakeResponse, origin string, callback bool) (outcome HandshakeOutcome, why string) {
	if a.Err != "" {
		return HandshakeRejected, "no response: " + a.Err
	}
	for _, allowed := range a.AllowedOrigin {
		if allowed = strings.TrimSpace(allowed); allowed == "*" || strings.EqualFold(allowed, origin) {
			return HandshakeAccepted, fmt.Sprintf("validated: responded %d with WebHook-Allowed-Origin: %s%s", a.Status,
				allowed, a.rate())
		}
	}
	if len(a.AllowedOrigin) > 0 {
		return HandshakeRejected, fmt.Sprintf("responded %d with WebHook-Allowed-Origin %q, which is not %s", a.Status,
			a.quoted(a.AllowedOrigin[0]), origin)
	}
	if a.Status == 200 && callback {
		return HandshakeAwaits, "responded 200 without WebHook-Allowed-Origin"
	}
	return HandshakeRejected, fmt.Sprintf("responded %d without WebHook-Allowed-Origin", a.Status)
}

// HandshakeAcknowledged checks the response to a notification: any status of 200 to 299 accepts it.
func HandshakeAcknowledged(a HandshakeResponse) (outcome HandshakeOutcome, why string) {
	if a.Err != "" {
		return HandshakeRejected, "no response: " + a.Err
	}
	if a.Status < 200 || a.Status > 299 {
		return HandshakeRejected, fmt.Sprintf("responded %d", a.Status)
	}
	return HandshakeAccepted, fmt.Sprintf("acknowledged: responded %d", a.Status)
}

func (a *HandshakeResponse) rate() string {
	if len(a.AllowedRate) == 0 {
		return ""
	}
	return fmt.Sprintf(" and WebHook-Allowed-Rate %q, which is not applied", a.quoted(a.AllowedRate[0]))
}

// quoted shortens an endpoint's text for logs, without secrets: Conceal does not find those that were cut.
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
