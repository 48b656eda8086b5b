package v1

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"postrider/internal/catalog"
	"postrider/internal/catalog/spec"
	"postrider/internal/endpointconf"
	"postrider/internal/jsonscan"
	"postrider/internal/message"
)

// changedProperties compares two objects setting by setting; before is nil for a new object.
func changedProperties(table []spec.Setting, before, after []byte) []PropertyChange {
	lines := []PropertyChange{}
	for i := range table {
		s := &table[i]
		if s.Section == "" && before != nil { // another name of a setting
			continue
		}
		was, is := shownAt(before, s.Name), shownAt(after, s.Name)
		if was != is {
			lines = append(lines, PropertyChange{s.Name, shortened(was), shortened(is)})
		}
	}
	slices.SortFunc(lines, func(a, b PropertyChange) int { return strings.Compare(a.Property, b.Property) })
	return lines
}

// shownAt is the value of a setting in JSON; "" for none, also for an empty text, list or object.
func shownAt(object []byte, path string) string {
	if object == nil {
		return ""
	}
	text := string(jsonscan.MustEncode(spec.At(object, path)))
	if slices.Contains([]string{`""`, "[]", "{}", "null"}, text) {
		return ""
	}
	return text
}

const maxShown = 200 // characters

func shortened(text string) string {
	if runes := []rune(text); len(runes) > maxShown {
		return string(runes[:maxShown-1]) + "…"
	}
	return text
}

// withSecrets is the JSON of an event subscription with its secrets masked. A secret that replaces another one of
// before is masked in another way.
func withSecrets(object []byte, s, before *catalog.SubscriptionSpec) []byte {
	var o map[string]any
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber()
	_ = decoder.Decode(&o) // an object, as it was read before
	base, query, _ := strings.Cut(s.EndpointURL, "?")
	if _, was, _ := strings.Cut(before.EndpointURL, "?"); query != "" {
		base += "?" + masked(query, was)
	}
	if s.MessageFormat.IsMessage() { // the path is a secret, too
		base = s.EndpointBaseURL() + "/" + masked(s.EndpointURL, before.EndpointURL)
	}
	if s.Destination.IsWebHook() {
		o["endpointUrl"] = base
	} else if d, _ := o["destination"].(map[string]any); d != nil {
		properties, _ := d["properties"].(map[string]any)
		delete(properties, "connectionString") // its parts are in s
		for name, secret := range s.Destination.SecretsByName() {
			properties[name] = masked(secret, before.Destination.SecretsByName()[name])
		}
	}
	if s.MessageFormat == message.PagerDuty || o["pagerDutyRoutingKey"] != nil {
		o["pagerDutyRoutingKey"] = masked(s.PagerDutyRoutingKey, before.PagerDutyRoutingKey)
	}
	headers := slices.Clone(s.DeliveryAttributes)
	for i := range headers {
		if a := &headers[i]; a.IsSecret {
			was := ""
			for _, b := range before.DeliveryAttributes {
				if b.Name == a.Name && b.IsSecret {
					was = optional(b.Value, "")
				}
			}
			a.Value = new(masked(optional(a.Value, ""), was))
		}
	}
	o["deliveryAttributeMappings"] = headers
	if c, has := o["clientCertificate"].(map[string]any); has {
		was := cmp.Or(before.ClientCertificate, &endpointconf.ClientCertificate{})
		c["privateKey"] = masked(s.ClientCertificate.PrivateKey, was.PrivateKey)
	}
	if c, has := o["oauth2"].(map[string]any); has {
		c["clientSecret"] = masked(s.OAuth2.ClientSecret, cmp.Or(before.OAuth2, &endpointconf.OAuth2{}).ClientSecret)
	}
	if signing, has := o["signing"].(map[string]any); has && signing["secret"] != nil {
		signing["secret"] = "***"
	}
	return jsonscan.MustEncode(o)
}

// masked replaces a secret, which is "" if the stored one is kept.
func masked(secret, was string) string {
	if secret != "" && was != "" && secret != was {
		return "*** (changed)"
	}
	return "***"
}
