package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"postrider/internal/access"
)

// flatSettings returns the settings by their path in the REST API's JSON.
func (s *SubscriptionSpec) flatSettings() access.Settings {
	text, err := json.Marshal(s)
	if err != nil {
		return nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil
	}
	values := access.Settings{}
	for name, value := range members {
		var nested map[string]json.RawMessage
		if json.Unmarshal(value, &nested) != nil || nested == nil || !groups[name] {
			values[name] = value
			continue
		}
		for member, inner := range nested {
			values[name+"."+member] = inner
		}
	}
	return values
}

// groups are the objects whose members are separate settings.
var groups = map[string]bool{"filter": true, "retryPolicy": true}

// changesFrom are the changes from other settings to these.
func (s *SubscriptionSpec) changesFrom(other *SubscriptionSpec) map[string]any {
	changes := access.Changes(other.flatSettings(), s.flatSettings())
	hide := func(name string) {
		if _, changed := changes[name]; changed {
			changes[name] = access.Changed
		}
	}
	hide(routingKeySetting)
	if s.MessageFormat.IsMessage() || other.MessageFormat.IsMessage() {
		hide("endpointUrl") // its path is a secret, too
	}
	return changes
}

// auditPut writes the settings of a new event subscription, or those that changed, into the audit.
func auditPut(
	ctx context.Context, tx pgx.Tx, topic, name string, spec *SubscriptionSpec, existing *Subscription,
) error {
	e := access.AuditEntry{Action: access.AuditSubscriptionCreated, Topic: topic, Subscription: name}
	before := &SubscriptionSpec{}
	if existing != nil {
		e.Action, before = access.AuditSubscriptionReplaced, &existing.Stated
	}
	e.Changes = spec.changesFrom(before)
	e.Details = map[string]any{"settings": append([]string{}, slices.Sorted(maps.Keys(e.Changes))...)}
	// The audit shows which operator has skipped the validation of an endpoint.
	if !spec.Validated() {
		return access.Audit(ctx, tx, e)
	}
	if spec.EndpointValidation != ValidationRequired {
		e.Details["endpointValidation"] = ValidationSkip
	} else if before.EndpointValidation != ValidationRequired {
		e.Details["endpointValidation"] = ValidationRequired
	}
	return access.Audit(ctx, tx, e)
}

// The settings of a topic and of a retry policy are the columns of their views, which contain no secrets.
const topicSettings = `SELECT to_jsonb(t) - '{topic,subscriptions,created_at,updated_at}'::text[]
	FROM postrider.topics t WHERE topic = $1`

// readSettings reads the settings of one topic or retry policy; nil if there is no such row.
func readSettings(ctx context.Context, tx pgx.Tx, query, name string) (access.Settings, error) {
	var row access.Settings
	err := tx.QueryRow(ctx, query, name).Scan(&row)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the settings of %q for the audit: %w", name, err)
	}
	named := access.Settings{}
	for column, value := range row {
		named[MemberOf(column)] = value
	}
	return named, nil
}

// MemberOf is what the REST API calls a column: event_id is eventId.
func MemberOf(column string) string {
	words := strings.Split(column, "_")
	for i, word := range words[1:] {
		words[i+1] = strings.ToUpper(word[:min(1, len(word))]) + word[min(1, len(word)):]
	}
	return strings.Join(words, "")
}
