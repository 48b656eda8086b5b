package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/jackc/pgx/v5"

	"postrider/access"
)

// settingNames are those settings that are not called as their field with a small first letter; "" is no setting of its
// own.
var settingNames = map[string]string{
	"EndpointURL": "endpointUrl", "EndpointBaseURL": "", "DeadLetter": "deadLetterDestination",
	"DeadLetterProperties": "deadLetterDestination.properties", "DeliveryAttributes": "deliveryAttributeMappings",
	"Signed": "signing", "ExpirationTimeUTC": "expirationTimeUtc", "Connection": "",
	"MinimumTLSVersion": "minimumTlsVersionAllowed", "OAuth2": "oauth2",
	"RetryPolicy": "retryPolicy.policy", "MaxDeliveryAttempts": "retryPolicy.maxDeliveryAttempts",
	"EventTimeToLiveInMinutes": "retryPolicy.eventTimeToLiveInMinutes",
}

// settings returns the settings by name, as the REST API spells them, and the names in their order. A struct's own
// fields are settings of their own.
func (s *SubscriptionSpec) settings() (names []string, values access.Settings) {
	values = access.Settings{}
	names = flatten(reflect.ValueOf(*s), "", values, nil)
	return flatten(reflect.ValueOf(s.Connection), "", values, names), values // settings of the first rank
}

func flatten(v reflect.Value, path string, values access.Settings, names []string) []string {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, listed := settingNames[field.Name]
		if !listed {
			name = strings.ToLower(field.Name[:1]) + field.Name[1:]
		}
		_, whole := v.Field(i).Interface().(json.Marshaler)
		switch {
		case name == "":
		case field.Type.Kind() == reflect.Struct && !whole:
			names = flatten(v.Field(i), path+name+".", values, names)
		default:
			values[path+name] = v.Field(i).Interface()
			names = append(names, path+name)
		}
	}
	return names
}

// differentSettings names the settings that differ, as the REST API spells them.
func differentSettings(old, fresh *SubscriptionSpec) []string {
	found := []string{}
	names, before := old.settings()
	_, after := fresh.settings()
	for _, name := range names {
		if !access.SameValue(before[name], after[name]) {
			found = append(found, name)
		}
	}
	return found
}

// changesFrom are the changes from other settings to these.
func (s *SubscriptionSpec) changesFrom(other *SubscriptionSpec) map[string]any {
	_, before := other.settings()
	_, after := s.settings()
	return access.Changes(before, after)
}

// auditPut writes the settings of a new event subscription, or those that changed, into the audit.
func auditPut(
	ctx context.Context, tx pgx.Tx, topic, name string, spec *SubscriptionSpec, existing *Subscription,
) error {
	e := access.AuditEntry{Action: access.AuditSubscriptionMade, Topic: topic, Subscription: name}
	before := &SubscriptionSpec{}
	if existing != nil {
		e.Action, before = access.AuditSubscriptionReplaced, &existing.SubscriptionSpec
	}
	e.Details = map[string]any{"settings": differentSettings(before, spec)}
	e.Changes = spec.changesFrom(before)
	// An operator who skips the validation of an endpoint is responsible for it.
	switch {
	case spec.EndpointValidation != ValidationRequired:
		e.Details["endpointValidation"] = ValidationSkip
	case before.EndpointValidation != ValidationRequired:
		e.Details["endpointValidation"] = ValidationRequired
	}
	return access.Audit(ctx, tx, e)
}

// The settings of a topic and of a retry policy are the columns of their views, which contain no secrets.
const topicSettings = `SELECT to_jsonb(t) - '{topic,subscriptions,created_at,updated_at}'::text[]
	FROM postrider.topics t WHERE topic = $1`

var policySettings = sqlFile("policy_settings.sql")

// readSettings reads the settings of one topic or retry policy; nil if there is no such row.
func readSettings(ctx context.Context, tx pgx.Tx, query, name string) (access.Settings, error) {
	var row access.Settings
	if err := tx.QueryRow(ctx, query, name).Scan(&row); errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read the settings of %q for the audit: %w", name, err)
	}
	named := access.Settings{}
	for column, value := range row {
		named[apiName(column)] = value
	}
	return named, nil
}

// apiName is what the REST API calls a column.
func apiName(column string) string {
	first, rest, _ := strings.Cut(column, "_")
	if strings.HasPrefix(column, "cells.") || rest == "" {
		return column
	}
	name := first
	for part := range strings.SplitSeq(rest, "_") {
		name += strings.ToUpper(part[:1]) + part[1:]
	}
	return name
}
