package jobs

import (
	"net/http"
	"strconv"
	"time"
)

// sign adds the headers of Standard Webhooks. id must not change from attempt to attempt, for receivers know a message again by it.
// body is what is sent, byte for byte.
//
// Source: Standard Webhooks, specification 1.0.0, webhook headers.
func (a *attempt) sign(h http.Header, id string, at time.Time, body []byte) {
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
	h.Set("Webhook-Signature", a.sub.Signing.Sign(id, at, body))
}
