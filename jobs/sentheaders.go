package jobs

import "bytes"

const (
	// maxSentBytes is how much of a request's headers an attempt keeps.
	maxSentBytes = 2048
	hidden       = "***"
)

// sentHeaders are the headers of the request as the attempt keeps them: names with values, but no value of a header that
// authenticates. They cost a delivery 9 % more WAL and 3 % more CPU (docs/decisions.md).
func (a *attempt) sentHeaders() []byte {
	if a.posted == nil {
		return nil
	}
	shown := a.posted.Clone()
	hide := func(name string) {
		if shown.Get(name) != "" {
			shown.Set(name, hidden)
		}
	}
	for _, name := range []string{"Authorization", "Proxy-Authorization", "Cookie", "Webhook-Signature"} {
		hide(name)
	}
	for i := range a.sub.DeliveryAttributes {
		if a.sub.DeliveryAttributes[i].IsSecret {
			hide(a.sub.DeliveryAttributes[i].Name)
		}
	}
	var out bytes.Buffer
	_ = shown.Write(&out) // a bytes.Buffer cannot fail
	return out.Bytes()[:min(out.Len(), maxSentBytes)]
}
