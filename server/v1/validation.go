package v1

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/server/api"
)

const (
	// DefaultValidationWait is how long a PUT waits for the handshake. Clients commonly have longer timeouts.
	DefaultValidationWait = 15 * time.Second

	codeEndpointValidationFailed = "EndpointValidationFailed"
	// CodeValidationOver is the code of a validation that failed or has expired.
	CodeValidationOver = "ValidationOver"
)

// publicBase is the context key of the URL that validationUrl begins with.
type publicBase struct{}

// WithBase puts the public base URL into the request's context: publicURL, or else the URL of the request.
func WithBase(publicURL string) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			base := publicURL
			if base == "" {
				base = (&url.URL{Scheme: c.Scheme(), Host: c.Request().Host}).String()
			}
			c.SetRequest(c.Request().WithContext(context.WithValue(c.Request().Context(), publicBase{}, base)))
			return next(c)
		}
	}
}

func baseOf(ctx context.Context) string {
	base, _ := ctx.Value(publicBase{}).(string)
	return base
}

// defaultValidation is the default of endpointValidation for an endpoint. Chat and paging services know no handshake.
func (m *Handlers) defaultValidation(s *catalog.SubscriptionSpec) catalog.EndpointValidation {
	if !s.Destination.IsWebHook() {
		return catalog.ValidationRequired // see checkTarget
	}
	if s.MessageFormat.IsMessage() {
		return catalog.ValidationSkip
	}
	if u, err := url.Parse(s.EndpointURL); err == nil && m.DefaultValidation != nil {
		return m.DefaultValidation(u.Hostname())
	}
	return catalog.ValidationRequired
}

// SkipLocal is the default of endpointValidation under postrider dev: it trusts endpoints on the same machine and in
// these address ranges, and those whose name no public endpoint has, such as that of a container.
func SkipLocal(allowed []netip.Prefix) func(host string) catalog.EndpointValidation {
	return func(host string) catalog.EndpointValidation {
		name := strings.ToLower(strings.TrimSuffix(host, "."))
		address, err := netip.ParseAddr(name)
		skip := !strings.Contains(name, ".")
		if err == nil {
			within := func(p netip.Prefix) bool { return p.Contains(address.Unmap()) }
			skip = address.Unmap().IsLoopback() || slices.ContainsFunc(allowed, within)
		}
		for _, under := range []string{".localhost", ".internal", ".local"} {
			skip = skip || strings.HasSuffix(name, under)
		}
		if skip && name != "" {
			return catalog.ValidationSkip
		}
		return catalog.ValidationRequired
	}
}

// put stores an event subscription, after a handshake with its endpoint if necessary.
func (m *Handlers) put(
	ctx context.Context, topic *catalog.Topic, name string, spec catalog.SubscriptionSpec, when ...postgres.Condition,
) (*catalog.Subscription, bool, error) {
	if err := m.checkTarget(ctx, topic.Name, name, &spec); err != nil {
		return nil, false, err
	}
	sub, made, err := m.Parts.Subscriptions.Put(ctx, topic.Name, name, spec, when...)
	if errors.Is(err, postgres.ErrNotValidated) {
		return m.putValidated(ctx, topic, name, spec, when...)
	}
	return sub, made, err
}

func (m *Handlers) putValidated(
	ctx context.Context, topic *catalog.Topic, name string, spec catalog.SubscriptionSpec, when ...postgres.Condition,
) (*catalog.Subscription, bool, error) {
	handshake, err := m.Parts.Handshakes.BeginValidation(ctx, topic, name, &spec, baseOf(ctx))
	if err != nil {
		return nil, false, err
	}
	if err := m.Parts.Handshakes.Wait(ctx, handshake, m.ValidationWait); err != nil {
		return nil, false, err
	}
	sub, made, err := m.Parts.Subscriptions.PutValidated(ctx, topic.Name, name, spec, handshake, when...)
	if errors.Is(err, catalog.ErrValidationPending) {
		return nil, false, api.Reject(http.StatusBadRequest, codeEndpointValidationFailed,
			"The attempt to validate the provided endpoint %s failed. It did not respond within %s, so the previous endpoint "+
				"is kept. Try again, or set endpointValidation to skip.",
			spec.EndpointBaseURL(), m.ValidationWait)
	}
	return sub, made, validationError(err)
}

// validationError is the response to a failed handshake, in Event Grid's sentence.
// Source: Microsoft, Troubleshoot Azure Event Grid subscription validations, 2024.
func validationError(err error) error {
	var failed *catalog.ValidationFailedError
	if !errors.As(err, &failed) {
		return err
	}
	h := failed.Handshake
	rejection := api.Reject(http.StatusBadRequest, codeEndpointValidationFailed,
		"The attempt to validate the provided endpoint %s failed. %s. Let the endpoint respond to the handshake, or set "+
			"endpointValidation to skip.", h.EndpointBaseURL, capital(h.Message))
	for _, step := range h.Steps {
		rejection.Details = append(rejection.Details,
			api.ErrorDetail{Code: codeEndpointValidationFailed, Target: "endpointUrl", Message: step.Sent + ": " + step.Verdict})
	}
	return rejection
}

func capital(s string) string { return strings.ToUpper(s[:min(len(s), 1)]) + s[min(len(s), 1):] }

// ValidateSubscription repeats the validation handshake.
//
// Starts a new handshake, for example after a failed one. The response waits up to 15 s and is the same as for a PUT. A
// failure is 400 `EndpointValidationFailed` and changes nothing.
func (m *Handlers) ValidateSubscription(ctx context.Context, r *SubscriptionPath) (*Subscription, error) {
	sub, err := m.Parts.Subscriptions.Get(ctx, r.Topic, r.Subscription)
	if err != nil {
		return nil, err
	}
	if sub.Pulled() {
		return nil, api.RejectConflict(api.ConflictCodeNoEndpoint,
			"event subscription %q of topic %q has no endpoint: its deliveryMode is %s", r.Subscription, r.Topic,
			catalog.ModeQueue)
	}
	if !sub.Destination.IsWebHook() {
		return nil, api.RejectConflict(api.ConflictCodeNoEndpoint,
			"event subscription %q of topic %q has no handshake: its destination is a %s", r.Subscription, r.Topic,
			sub.Destination.Type())
	}
	topic, err := m.Parts.Topic(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	handshake, err := m.Parts.Handshakes.RepeatValidation(ctx, topic, sub, baseOf(ctx))
	if err != nil {
		return nil, err
	}
	if err := m.Parts.Handshakes.Wait(ctx, handshake, m.ValidationWait); err != nil {
		return nil, err
	}
	sub, err = m.Parts.Subscriptions.ConcludeValidation(ctx, r.Topic, r.Subscription, handshake)
	switch {
	case errors.Is(err, postgres.ErrConflict):
		return nil, api.RejectConflict(api.ConflictCodeEndpointChanged,
			"another request changed the endpoint of event subscription %q of topic %q", r.Subscription, r.Topic)
	case err != nil:
		return nil, validationError(err)
	}
	return m.withHeld(ctx, sub)
}

// Validation is a validation handshake with an endpoint.
type Validation struct {
	// State of the handshake. awaiting: open validationUrl.
	State catalog.HandshakeState `json:"state" enum:"pending,succeeded,awaiting,failed"`
	// State in words.
	Message string `json:"message"`
	// URL that completes the handshake, by GET or POST without a credential. It is only for administrators, while the
	// state is awaiting.
	ValidationURL *string `json:"validationUrl"`
	// When validationUrl expires; null in other states.
	ExpiresAt *time.Time `json:"expiresAt"`
	// When it began.
	StartedAt time.Time `json:"startedAt"`
	// When it succeeded or failed; null before.
	ConcludedAt *time.Time `json:"concludedAt"`
	// Its requests and responses in their order.
	Steps []ValidationStep `json:"steps"`
}

// ValidationStep is a request of a handshake and its response.
type ValidationStep struct {
	// When it happened.
	At time.Time `json:"at"`
	// The request.
	Sent string `json:"sent"`
	// HTTP status of the response; null without one.
	Status *int `json:"status"`
	// Why there was no response.
	Error *string `json:"error"`
	// First 4 KiB of the response body, without the code; null if it was empty.
	Response *string `json:"response"`
	// Interpretation of the response.
	Verdict string `json:"verdict"`
}

// validationView shows the last handshake of an event subscription; nil if there was none.
func (m *Handlers) validationView(ctx context.Context, s *catalog.Subscription) (*Validation, error) {
	if s.HandshakeID == 0 {
		return nil, nil
	}
	h, err := m.Parts.Handshakes.Get(ctx, s.HandshakeID)
	if errors.Is(err, postgres.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	shown := &Validation{
		State: h.State, Message: h.Message, StartedAt: h.CreatedAt, ConcludedAt: h.ConcludedAt, Steps: []ValidationStep{},
	}
	if h.State == catalog.HandshakeAwaiting {
		shown.ExpiresAt = h.CallbackExpiresAt
		// Opening the URL validates the endpoint.
		if access.ActorOf(ctx).Role.Allows(access.RoleAdmin) {
			shown.ValidationURL = new(h.ValidationURL())
		}
	}
	for i := range h.Steps {
		s := &h.Steps[i]
		step := ValidationStep{
			At: s.At, Sent: s.Sent, Error: textOrNull(s.Error), Verdict: s.Verdict,
			Response: textOrNull(strings.ToValidUTF8(string(s.Response), "\uFFFD")),
		}
		if s.Status != 0 {
			step.Status = &s.Status
		}
		shown.Steps = append(shown.Steps, step)
	}
	return shown, nil
}
