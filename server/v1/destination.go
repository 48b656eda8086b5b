package v1

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"

	"postrider/internal/catalog"
	"postrider/internal/catalog/spec"
	"postrider/internal/destination"
	"postrider/internal/endpointconf"
	"postrider/policy"
	"postrider/server/api"
)

// destination checks where events go, and the settings that its type does not have. It completes the secrets with the
// stored ones.
func (m *Handlers) destination(found *problems, s, stored *catalog.SubscriptionSpec, t *catalog.Topic) {
	d := s.Destination
	switch {
	case d == nil:
		return
	case d.IsWebHook():
		if d.Properties != nil {
			found.Value("destination.properties", "must be absent with endpointType %s: set endpointUrl", destination.WebHook)
		}
		s.Destination = nil // the default
		return
	case !slices.Contains(destination.Types(), string(d.EndpointType)):
		return // the table of settings reports it
	case d.Properties == nil:
		found.Value("destination.properties", "is required with endpointType %s", d.EndpointType)
		return
	}
	found.absent(s, func(setting *spec.Setting) bool {
		return setting.Of != nil && !slices.Contains(setting.Of, d.EndpointType)
	}, "must be absent with destination.endpointType "+string(d.EndpointType))
	divided, mistakes := d.Normalize()
	if len(mistakes) > 0 {
		found.validation(mistakes)
		return
	}
	s.Destination = divided.KeepSecrets(stored.Destination, s.OAuth2 != nil)
	if lost := s.Destination.LostSecret(stored.Destination); lost != "" {
		found.Value("destination.properties."+lost, "is required again: the target has changed")
	}
	found.validation(s.Destination.Mistakes(destination.Surroundings{
		Attributes: s.DeliveryAttributes, Schema: s.WithDefaults(t).EventDeliverySchema, OAuth2: s.OAuth2 != nil,
		Allow: m.Allow, AllowHTTP: m.AllowHTTP,
	}))
}

// absent rejects settings that are set.
func (p *problems) absent(s *catalog.SubscriptionSpec, which func(*spec.Setting) bool, message string) {
	text, err := json.Marshal(s)
	if err != nil {
		p.Check(err)
		return
	}
	for i := range spec.Subscription {
		setting := &spec.Subscription[i]
		value := spec.At(text, setting.Name)
		unset := []string{"", "[]", setting.Default, strconv.Quote(setting.Default)}
		if which(setting) && !slices.Contains(unset, string(value)) {
			p.Value(setting.Name, "%s", message)
		}
	}
}

// checkTarget checks that a new target exists and accepts its credentials, as far as its protocol can show that without
// a message. The rejection is that of a failed handshake.
func (m *Handlers) checkTarget(ctx context.Context, topic, name string, s *catalog.SubscriptionSpec) error {
	if m.Check == nil || s.Destination.IsWebHook() || s.EndpointValidation == catalog.ValidationSkip {
		return nil
	}
	stored, err := m.storedSpec(ctx, topic, name)
	if err != nil {
		return err
	}
	by, err := endpointconf.KeepConnectionSecrets(s.Connection, &stored.Connection)
	if err != nil || reflect.DeepEqual(stored.Destination, s.Destination) && reflect.DeepEqual(stored.Connection, by) {
		return nil //nolint:nilerr // Put reports it
	}
	result := m.Check(ctx, m.Parts.Clock.Now(), s.Destination, &by)
	if result.Err == policy.ErrorNone && (result.Status == 0 || result.Status < http.StatusMultipleChoices) {
		return nil
	}
	return api.Reject(http.StatusBadRequest, codeEndpointValidationFailed,
		"The attempt to validate the provided endpoint %s failed. %s. Correct the settings of destination, or set "+
			"endpointValidation to skip.", s.EndpointBaseURL(), capital(result.Text))
}
