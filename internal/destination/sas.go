package destination

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// tokenLifetime covers the longest usual ack timeout and a clock that is 5 minutes off.
const tokenLifetime = 5*time.Minute + 30*time.Second

var errNoForm = errors.New("the destination has no HTTP form")

// Form returns the form of the requests to a service that is reached by HTTP. It returns an error for other types, and
// for properties that Mistakes rejects. Without keys and sharedAccessSignature, requests have no Authorization header:
// the caller adds that of the setting oauth2.
func (d *Destination) Form() (Form, error) {
	t := d.Type()
	service, ok := serviceNames[t]
	if !ok || d.Properties == nil {
		return nil, errNoForm
	}
	p := d.Properties
	base, entity, err := p.Address(t)
	if err != nil {
		return nil, err
	}
	if entity == "" {
		return nil, fmt.Errorf("must name a %s", resources[t].entity)
	}
	base = base.JoinPath() // a copy
	base.Path, base.RawPath = strings.TrimSuffix(base.Path, "/")+"/"+entity, ""
	responses := &translator{service: service, rules: busRules, stored: p.SharedAccessSignature != ""}
	if t == StorageQueue {
		responses.rules = queueRules
		return newQueueForm(p, base, responses)
	}
	bus := &busForm{
		translator: responses, kind: t, url: base.String() + "/messages", max: defaultMaxBytes(t), token: token{
			// Relay's own clients sign the URL with http, also for connections with TLS.
			resource: strings.ToLower(base.String()), keyName: p.SharedAccessKeyName,
			keys: [2]string{p.PrimaryKey, p.SecondaryKey}, signature: p.SharedAccessSignature,
		},
	}
	if p.MaxMessageSizeInKilobytes != nil {
		bus.max = *p.MaxMessageSizeInKilobytes << 10
	}
	switch t {
	case EventHub:
		bus.url += "?timeout=30&api-version=2014-01"
	case HybridConnection:
		bus.token.resource = "http" + strings.TrimPrefix(bus.token.resource, strings.ToLower(base.Scheme))
		return &relayForm{translator: responses, url: base.String(), token: bus.token}, nil
	default:
		bus.url += "?timeout=30"
	}
	return bus, nil
}

// serviceNames are those that people know the services by.
var serviceNames = map[Type]string{
	StorageQueue: "Storage Queue", ServiceBusQueue: "Service Bus", ServiceBusTopic: "Service Bus", EventHub: "Event Hubs",
	HybridConnection: "Relay",
}

// token makes shared access signatures of Service Bus, Event Hubs and Relay.
type token struct {
	resource, keyName string
	keys              [2]string
	signature         string // a stored one; then there are no keys
}

// at returns a token that is valid from now; "" without credentials. ok is false if second is true and there is no
// second key.
func (t *token) at(now time.Time, second bool) (text string, ok bool) {
	key := t.keys[0]
	if second {
		key = t.keys[1]
	}
	switch {
	case key != "":
		return sharedAccessToken(t.resource, t.keyName, key, now.Add(tokenLifetime)), true
	case second:
		return "", false
	case t.signature != "":
		return tokenScheme + strings.TrimPrefix(t.signature, tokenScheme), true
	}
	return "", true
}

const tokenScheme = "SharedAccessSignature "

// sharedAccessToken signs the escaped URL and the expiry. The key is text, not base64, although it looks so.
// Source: Microsoft, Service Bus access control with Shared Access Signatures.
func sharedAccessToken(resource, keyName, key string, expiry time.Time) string {
	scope, end := url.QueryEscape(resource), strconv.FormatInt(expiry.Unix(), 10)
	signature := base64.StdEncoding.EncodeToString(sum([]byte(key), scope+"\n"+end))
	return tokenScheme + "sr=" + scope + "&sig=" + url.QueryEscape(signature) + "&se=" + end + "&skn=" +
		url.QueryEscape(keyName)
}

func sum(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
