package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// AuditFilter selects rows of the audit; "" or nil = all.
type AuditFilter struct {
	// Actor: user:NAME, key:NAME, admin, cli, signIn or a role of the database.
	Actor string `query:"actor" label:"Actor"`
	// Action, such as subscription_paused. An unknown action is rejected.
	Action       string `query:"action" label:"Action" choices:"actions"`
	Topic        string `query:"topic" label:"Topic"`
	Subscription string `query:"subscription" label:"Event subscription"`
	// At this time or later.
	From *time.Time `query:"from" label:"From"`
	// Before this time.
	To *time.Time `query:"until" name:"until" aliases:"to"`
}

// AuditActions are the actions of the audit, in the order of the comment on postrider.audit.action.
var AuditActions = []string{
	"topic_created", "topic_replaced", "topic_deleted", "topic_keys_shown", "topic_keys_replaced", "events_published",
	"subscription_created", "subscription_replaced", "subscription_deleted", "subscription_expired",
	"subscription_validation_requested", "subscription_validated", "subscription_paused", "subscription_resumed",
	"subscription_released", "subscription_probed", "endpoint_url_shown", "delivery_attributes_shown",
	"signing_secrets_shown", "signing_secret_rotated", "test_delivery_created", "delivery_canceled", "delivery_retried",
	"delivery_dead_lettered", "dead_letter_redelivered", "dead_letter_repaired", "dead_letter_resolved",
	"dead_letter_reopened", "dead_letter_purged", "dead_letters_imported", "problem_acknowledged", "problem_resolved",
	"relay_callback_opened", "event_redelivered", "event_erased", "subject_erased",
	"operation_started", "operation_canceled", "operation_finished",
	"policy_created", "policy_replaced", "policy_deleted", "query_run", "query_saved", "query_deleted",
	"api_key_created", "api_key_revoked", "user_created", "user_replaced", "user_deleted", "password_changed",
	"signed_in", "signed_out", "sessions_ended", "sign_in_failed", "requests_rejected", "encryption_keys_retired",
}

// AuditLine is a recorded action.
type AuditLine struct {
	// Number of the entry. Later entries have higher numbers.
	AuditID int64 `json:"auditId" list:"/v1/audit"`
	// When it happened.
	At time.Time `json:"at" column:"Time"`
	// Actor: user:NAME, key:NAME, admin (the admin token), cli, signIn (a client with a wrong password), postrider, or a
	// role of the database.
	Actor string `json:"actor" column:"Actor" class:"long"`
	// Action, such as topic_created.
	Action string `json:"action" column:"Action"`
	// Name of the event subscription; null without one.
	Subscription *string `json:"subscription" column:"Event subscription" title:"SUBSCRIPTION" class:"long"`
	// Name of the topic; null without one.
	Topic *string `json:"topic" column:"Topic" class:"long"`
	// More about the action, without secrets.
	Details JSON `json:"details" type:"object" column:"Details" class:"long"`
	// Changed settings with their old and new values: {"labels": {"old": [], "new": ["a"]}}. {"changed": true} for secrets
	// and for values over 4 KiB. Null without a change of settings.
	Changes *JSON `json:"changes" type:"object" column:"Changes" class:"long" off:"cli"`
	// Address of the client.
	Address *string `json:"address" column:"Address" off:"pages"`
}

// JSON is the text of a JSON value, which is shown as it is stored.
type JSON string

// MarshalJSON implements json.Marshaler.
func (j JSON) MarshalJSON() ([]byte, error) { return []byte(j), nil }

// ReadAudit reads a page of the audit, the newest row first. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadAudit(
	ctx context.Context, f AuditFilter, t Turn[int64],
) (page SearchedPage[AuditLine, int64], err error) {
	err = read(ctx, r.db, "the audit", func(r *reading) { page = readAudit(r, f, t) })
	return page, err
}

func readAudit(r *reading, f AuditFilter, t Turn[int64]) SearchedPage[AuditLine, int64] {
	return readPage[AuditLine](r, "audit", t, f != AuditFilter{}, pgx.NamedArgs{
		"actor": given(f.Actor), "action": given(f.Action), "topic": given(f.Topic),
		"subscription": given(f.Subscription), "from": f.From, "to": f.To,
	})
}
