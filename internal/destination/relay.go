package destination

import (
	"net/http"
	"time"

	"postrider/policy"
)

// relayForm sends the webhook's request through a hybrid connection of Azure Relay to its listener.
//
// Source: Microsoft, Azure Relay Hybrid Connections protocol, HTTP request protocol.
type relayForm struct {
	*translator
	url   string
	token token
}

func (*relayForm) Write([]Message) (body []byte, contentType string) { return nil, "" }

func (*relayForm) MaxBytes() int { return 0 }

// Authorize uses the header that the service removes, so that Authorization stays free for the listener.
func (f *relayForm) Authorize(h http.Header, _ []byte, now time.Time, second bool) (url string, ok bool) {
	text, ok := f.token.at(now, second)
	if !ok {
		return "", false
	}
	f.signed.Store(now.Unix())
	if text != "" {
		h.Set("ServiceBusAuthorization", text)
	}
	return f.url, true
}

// Translate returns the listener's own responses, which have the header Via, as they are.
func (f *relayForm) Translate(status int, h http.Header, text []byte) Result {
	if h.Get("Via") != "" {
		return Result{Result: policy.Result{Status: status}, RetryAfter: retryAfter(h, ""), Passed: true}
	}
	return f.translator.Translate(status, h, text)
}

// Check returns none: any request would reach the listener.
func (*relayForm) Check(time.Time, bool) (url string, h http.Header, ok bool) { return "", nil, false }
