package management

import (
	"context"
	"encoding/json"

	"postrider/query"
	"postrider/server/api"
)

// ListAudit answers GET /v1/audit.
func (m *Handlers) ListAudit(ctx context.Context, r api.ListAuditRequestObject) (api.ListAuditResponseObject, error) {
	p := r.Params
	turn, err := readTurn(p.Limit, p.Cursor, parseNumber)
	if err != nil {
		return nil, err
	}
	var found problems
	f := query.AuditFilter{
		Actor: found.text("actor", p.Actor), Action: found.text("action", p.Action), Topic: found.text("topic", p.Topic),
		Subscription: found.text("subscription", p.Subscription),
	}
	f.From, f.To = found.span("from", p.From, "until", p.Until)
	if err := found.Err(); err != nil {
		return nil, err
	}
	page, err := m.Parts.Reader.ReadAudit(ctx, f, turn)
	if err != nil {
		return nil, err
	}
	id := func(l query.AuditLine) int64 { return l.AuditID }
	return api.ListAudit200JSONResponse{Value: described(page.Rows, DescribeAudit), NextLink: nextOf("/v1/audit", p,
		turn.Limit, page, id, numberText)}, nil
}

// DescribeAudit is a row of the audit as the REST API and `audit list -o json` write it.
func DescribeAudit(l *query.AuditLine) api.AuditEntry {
	return api.AuditEntry{
		AuditId: l.AuditID, At: l.At.UTC(), Actor: l.Actor, Address: l.Address, Action: l.Action, Topic: l.Topic,
		Subscription: l.Subscription, Details: json.RawMessage(l.Details), Changes: changesShown(l.Changes),
	}
}

func changesShown(changes *string) *json.RawMessage {
	if changes == nil {
		return nil
	}
	return new(json.RawMessage(*changes))
}
