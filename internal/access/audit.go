package access

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

// Actor is the user or program that changes the configuration or reads a secret, for the audit.
type Actor struct {
	// Name of the user, program or credential.
	Name string
	// Address is the client's; "" without a request.
	Address string
	// PersonalKey is the name of the personal API key that the user sent; "" for another credential.
	PersonalKey string
	// Role is the role that the API has found for the actor; "" if it was not checked. Access does not check it.
	Role Role
	// Query reports whether the actor may run SQL queries; found with the role.
	Query bool
}

// Role is what a user or a program may do. Each role includes those before it.
type Role string

// The roles.
const (
	RoleViewer   Role = "viewer"   // reads everything except secrets
	RoleOperator Role = "operator" // also decides about deliveries, dead letters and holds
	RoleAdmin    Role = "admin"    // also changes the configuration, reads secrets and manages users
)

// Allows reports whether this role includes the needed one.
func (r Role) Allows(needed Role) bool {
	rank := map[Role]int{RoleViewer: 1, RoleOperator: 2, RoleAdmin: 3}
	return rank[needed] > 0 && rank[r] >= rank[needed]
}

// APIKey is the name of the API key that the actor sent, of a program or a user; "" for another credential.
func (a Actor) APIKey() string {
	if name, program := strings.CutPrefix(a.Name, keyActor); program {
		return name
	}
	return a.PersonalKey
}

// User is the name of the user who signed in or whose personal key was sent; "" for other actors.
func (a Actor) User() string {
	if name, user := strings.CutPrefix(a.Name, userActor); user {
		return name
	}
	return ""
}

type actorKey struct{}

// WithActor sets the actor of all calls under ctx. Without it, the actor is "postrider".
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActorOf returns the actor of calls under ctx.
func ActorOf(ctx context.Context) Actor {
	if a, ok := ctx.Value(actorKey{}).(Actor); ok {
		return a
	}
	return Actor{Name: "postrider"}
}

// AuditAction is an action in the audit; see the comment on postrider.audit.action.
type AuditAction string

// The actions.
const (
	AuditTopicCreated         AuditAction = "topic_created"
	AuditTopicReplaced        AuditAction = "topic_replaced"
	AuditTopicDeleted         AuditAction = "topic_deleted"
	auditPublished            AuditAction = "events_published"
	AuditKeysShown            AuditAction = "topic_keys_shown"
	AuditKeysReplaced         AuditAction = "topic_keys_replaced"
	AuditSubscriptionCreated  AuditAction = "subscription_created"
	AuditSubscriptionReplaced AuditAction = "subscription_replaced"
	AuditSubscriptionDeleted  AuditAction = "subscription_deleted"
	AuditSubscriptionExpired  AuditAction = "subscription_expired"
	AuditValidationRequested  AuditAction = "subscription_validation_requested"
	AuditValidated            AuditAction = "subscription_validated"
	AuditProbed               AuditAction = "subscription_probed"
	AuditEndpointShown        AuditAction = "endpoint_url_shown"
	AuditAttributesShown      AuditAction = "delivery_attributes_shown"
	AuditSigningShown         AuditAction = "signing_secrets_shown"
	AuditSigningRotated       AuditAction = "signing_secret_rotated"
	AuditPolicyCreated        AuditAction = "policy_created"
	AuditPolicyReplaced       AuditAction = "policy_replaced"
	AuditPolicyDeleted        AuditAction = "policy_deleted"
	AuditKeysRetired          AuditAction = "encryption_keys_retired"
	auditKeyCreated           AuditAction = "api_key_created"
	auditKeyRevoked           AuditAction = "api_key_revoked"
	auditUserCreated          AuditAction = "user_created"
	auditUserReplaced         AuditAction = "user_replaced"
	auditUserDeleted          AuditAction = "user_deleted"
	auditPasswordChanged      AuditAction = "password_changed"
	auditSignedIn             AuditAction = "signed_in"
	auditSignInFailed         AuditAction = "sign_in_failed"
	auditSignedOut            AuditAction = "signed_out"
	auditSessionsEnded        AuditAction = "sessions_ended"
	auditRejected             AuditAction = "requests_rejected"
	AuditQueryRun             AuditAction = "query_run"
	AuditQuerySaved           AuditAction = "query_saved"
	AuditQueryDeleted         AuditAction = "query_deleted"
)

// AuditEntry is one row of the audit. It must have no secret.
type AuditEntry struct {
	Action              AuditAction
	Topic, Subscription string // "" if the action concerns none
	Details             map[string]any
	// Changes are the old and new values of a changed configuration, see Changes(); nil if none changed.
	Changes map[string]any
}

// Audit writes a row in the transaction of its action.
func Audit(ctx context.Context, tx pgx.Tx, e AuditEntry) error {
	const insert = `INSERT INTO postrider_internal.audit (actor, address, action, topic, subscription, details, changes)
		VALUES ($1, nullif($2::text, ''), $3, nullif($4::text, ''), nullif($5::text, ''), coalesce($6::jsonb, '{}'),
		    $7::jsonb)`
	var texts [2]*string
	for i, member := range []map[string]any{e.Details, e.Changes} {
		if len(member) == 0 {
			continue
		}
		text, err := json.Marshal(member)
		if err != nil {
			return fmt.Errorf("write the audit: %w", err)
		}
		texts[i] = new(string(text))
	}
	who := ActorOf(ctx)
	return postgres.Exec(ctx, tx, "write the audit", insert, who.Name, who.Address, string(e.Action), e.Topic,
		e.Subscription, texts[0], texts[1])
}

// Audited reads a secret and writes a row of the audit in one transaction. If the row cannot be written, the caller
// must not show the secret.
func Audited(ctx context.Context, db *postgres.DB, e AuditEntry, read func(tx pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := read(tx); err != nil {
			return err
		}
		return Audit(ctx, tx, e)
	})
	return outage(err)
}

// outage adds ErrUnavailable to an error that may pass.
func outage(err error) error {
	if err != nil && postgres.IsOutage(err) {
		return fmt.Errorf("%w: %w", postgres.ErrUnavailable, err)
	}
	return err
}

// NotePublished writes into the audit that a user has published to a topic. The audit has no publishes through the API:
// there are thousands a second. ErrUnavailable.
func (a *Access) NotePublished(ctx context.Context, topic string, events int) error {
	e := AuditEntry{Action: auditPublished, Topic: topic, Details: map[string]any{"events": events}}
	return Audited(ctx, a.db, e, func(pgx.Tx) error { return nil })
}

// Rejection is how many requests the API rejected for one reason, within a minute.
type Rejection struct {
	// Actor whose credential does not allow the request; "unauthenticated" without a valid one, or if it was not checked.
	Actor string
	// Address of the client, or its IPv6 /64; "" for several clients.
	Address string
	// Topic that the requests named; "" for none.
	Topic         string
	Status, Times int
}

// NoteRejections writes a row of the audit for each rejection. ErrUnavailable.
func (a *Access) NoteRejections(ctx context.Context, rejected []Rejection) error {
	err := pgx.BeginFunc(ctx, a.db, func(tx pgx.Tx) error {
		for _, r := range rejected {
			by := WithActor(ctx, Actor{Name: r.Actor, Address: r.Address})
			e := AuditEntry{Action: auditRejected, Topic: r.Topic, Details: map[string]any{"status": r.Status, "times": r.Times}}
			if err := Audit(by, tx, e); err != nil {
				return err
			}
		}
		return nil
	})
	return outage(err)
}
