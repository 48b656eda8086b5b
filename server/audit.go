package server

import (
	"github.com/labstack/echo/v4"

	"postrider/store"
)

// What the audit calls whoever has the admin token, and whoever opens validationUrl.
const (
	adminName     = "admin"
	validatorName = "validationUrl"
)

// actsAs gives the request an identity: the store writes it into the audit of whatever is done.
func actsAs(c echo.Context, who store.Actor) {
	r := c.Request()
	c.SetRequest(r.WithContext(store.WithActor(r.Context(), who)))
}

// secrets writes a line at level info for each answer that holds secrets, without them.
func (s *Server) secrets(next StrictHandlerFunc, _ string) StrictHandlerFunc {
	return func(c echo.Context, request any) (any, error) {
		answer, err := next(c, request)
		if err != nil {
			return answer, err
		}
		what, about := "", []any{}
		switch r := request.(type) {
		case ListTopicKeysRequestObject:
			what, about = "access keys of a topic were shown", []any{"topic", r.Topic}
		case RegenerateTopicKeyRequestObject:
			what, about = "an access key of a topic was replaced", []any{"topic", r.Topic, "key", r.Body.KeyName}
		case RevealSubscriptionEndpointRequestObject:
			what, about = "the endpoint of an event subscription was shown in full", []any{"topic", r.Topic, "subscription", r.Subscription}
		case RevealSubscriptionHeadersRequestObject:
			what, about = "secret headers of an event subscription were shown", []any{"topic", r.Topic, "subscription", r.Subscription}
		case GetSigningSecretsRequestObject:
			what, about = "signing secrets of an event subscription were shown", []any{"topic", r.Topic, "subscription", r.Subscription}
		case RotateSigningSecretRequestObject:
			what, about = "the signing secret of an event subscription was replaced", []any{"topic", r.Topic, "subscription", r.Subscription}
		case CreateAPIKeyRequestObject:
			what, about = "an API key was made", []any{"key", r.Body.Name, "scope", r.Body.Scope}
		}
		if what != "" {
			s.log.Info(what, append(about, "client", c.RealIP(), "actor", store.ActorOf(c.Request().Context()).Name)...)
		}
		return answer, nil
	}
}
