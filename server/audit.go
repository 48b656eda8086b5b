package server

import (
	"context"
	"encoding/json"

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

// ListAudit answers GET /v1/audit.
func (m *management) ListAudit(ctx context.Context, r ListAuditRequestObject) (ListAuditResponseObject, error) {
	p := r.Params
	turn, err := readTurn(p.Limit, p.Cursor, parseNumber)
	if err != nil {
		return nil, err
	}
	var found problems
	f := store.AuditFilter{
		Actor: found.text("actor", p.Actor), Action: found.text("action", p.Action), Topic: found.text("topic", p.Topic), Subscription: found.text("subscription", p.Subscription),
	}
	f.From, f.To = found.span("from", p.From, "until", p.Until)
	if err := found.err(); err != nil {
		return nil, err
	}
	page, err := m.store.ReadAudit(ctx, f, turn)
	if err != nil {
		return nil, err
	}
	id := func(l store.AuditLine) int64 { return l.AuditID }
	return ListAudit200JSONResponse{Value: described(page.Rows, DescribeAudit), NextLink: nextOf("/v1/audit", p, turn.Limit, page.Page, page.LookedTo, id, numberText)}, nil
}

// DescribeAudit is a row of the audit as the REST API and `audit list -o json` write it.
func DescribeAudit(l *store.AuditLine) AuditEntry {
	return AuditEntry{
		AuditId: l.AuditID, At: l.At.UTC(), Actor: l.Actor, Address: l.Address, Action: l.Action, Topic: l.Topic, Subscription: l.Subscription, Details: json.RawMessage(l.Details), Changes: changesShown(l.Changes),
	}
}

func changesShown(changes *string) *json.RawMessage {
	if changes == nil {
		return nil
	}
	return new(json.RawMessage(*changes))
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
