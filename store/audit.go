package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Actor is who changes the configuration or asks for a secret, as the audit tells it.
type Actor struct {
	// Name of the person, program or credential.
	Name string
	// Address the request came from; "" where there is no request.
	Address string
	// PersonalKey is the name of the personal API key that the user sent; "" where it was another credential.
	PersonalKey string
	// Role is what a door has found the actor to be allowed; "" where no door has asked. The store itself asks nobody.
	Role Role
}

// Role is what a person or a program may do. Each may do what the one before it may, see Role.Allows.
type Role string

// The roles.
const (
	RoleViewer   Role = "viewer"   // reads everything that is no secret
	RoleOperator Role = "operator" // also decides about deliveries, dead letters and holds
	RoleAdmin    Role = "admin"    // also changes the configuration, reads secrets and lets others in
)

// Allows says whether who has this role may do what needs the other.
func (r Role) Allows(needed Role) bool {
	rank := map[Role]int{RoleViewer: 1, RoleOperator: 2, RoleAdmin: 3}
	return rank[needed] > 0 && rank[r] >= rank[needed]
}

// APIKey is the name of the API key that the actor sent, be it a program's or a personal one; "" where it was another credential.
func (a Actor) APIKey() string {
	if name, program := strings.CutPrefix(a.Name, keyActor); program {
		return name
	}
	return a.PersonalKey
}

type actorKey struct{}

// WithActor says in whose name the store is used under ctx. Without it, the program itself acts: "postrider".
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActorOf is in whose name the store is used under ctx.
func ActorOf(ctx context.Context) Actor {
	if a, ok := ctx.Value(actorKey{}).(Actor); ok {
		return a
	}
	return Actor{Name: "postrider"}
}

// auditAction is what was done; see the comment on postrider.audit.action.
type auditAction string

const (
	auditTopicMade            auditAction = "topic_made"
	auditTopicReplaced        auditAction = "topic_replaced"
	auditTopicDeleted         auditAction = "topic_deleted"
	auditPublished            auditAction = "events_published"
	auditKeysShown            auditAction = "topic_keys_shown"
	auditKeysReplaced         auditAction = "topic_keys_replaced"
	auditSubscriptionMade     auditAction = "subscription_made"
	auditSubscriptionReplaced auditAction = "subscription_replaced"
	auditSubscriptionDeleted  auditAction = "subscription_deleted"
	auditSubscriptionExpired  auditAction = "subscription_expired"
	auditValidationAsked      auditAction = "subscription_validation_asked"
	auditValidated            auditAction = "subscription_validated"
	auditProbed               auditAction = "subscription_probed"
	auditEndpointShown        auditAction = "endpoint_url_shown"
	auditAttributesShown      auditAction = "delivery_attributes_shown"
	auditSigningShown         auditAction = "signing_secrets_shown"
	auditSigningRotated       auditAction = "signing_secret_rotated"
	auditPolicyMade           auditAction = "policy_made"
	auditPolicyReplaced       auditAction = "policy_replaced"
	auditPolicyDeleted        auditAction = "policy_deleted"
	auditKeysRetired          auditAction = "encryption_keys_retired"
	auditKeyMade              auditAction = "api_key_made"
	auditKeyRevoked           auditAction = "api_key_revoked"
	auditLoginApproved        auditAction = "login_approved"
	auditLoginDenied          auditAction = "login_denied"
	auditUserMade             auditAction = "user_made"
	auditUserReplaced         auditAction = "user_replaced"
	auditUserDeleted          auditAction = "user_deleted"
	auditUserLockedOut        auditAction = "user_locked_out"
	auditPasswordChanged      auditAction = "password_changed"
	auditSignedIn             auditAction = "signed_in"
	auditSignInFailed         auditAction = "sign_in_failed"
	auditSignedOut            auditAction = "signed_out"
	auditSessionsEnded        auditAction = "sessions_ended"
	auditRejected             auditAction = "requests_rejected"
)

// auditEntry is one row of the audit. No secret may be in it.
type auditEntry struct {
	action              auditAction
	topic, subscription string // "" where the action is about none
	details             map[string]any
	// changes are the old and new values of a changed configuration, see changes(); nil where none changed.
	changes map[string]any
}

// audit writes a row in the transaction of what it tells of.
func audit(ctx context.Context, tx pgx.Tx, e auditEntry) error {
	const insert = `INSERT INTO postrider_internal.audit (actor, address, action, topic, subscription, details, changes)
		VALUES ($1, nullif($2::text, ''), $3, nullif($4::text, ''), nullif($5::text, ''), coalesce($6::jsonb, '{}'), $7::jsonb)`
	var texts [2]*string
	for i, member := range []map[string]any{e.details, e.changes} {
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
	if _, err := tx.Exec(ctx, insert, who.Name, who.Address, string(e.action), e.topic, e.subscription, texts[0], texts[1]); err != nil {
		return fmt.Errorf("write the audit: %w", err)
	}
	return nil
}

// audited reads a secret and writes a row of the audit in one transaction: what cannot be written is not shown.
func audited(ctx context.Context, db *DB, e auditEntry, read func(tx pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := read(tx); err != nil {
			return err
		}
		return audit(ctx, tx, e)
	})
	if err != nil && IsOutage(err) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// NotePublished writes into the audit that a user has published to a topic. Publishes through the API are not in the
// audit: there are thousands a second. ErrUnavailable.
func (a *Access) NotePublished(ctx context.Context, topic string, events int) error {
	e := auditEntry{action: auditPublished, topic: topic, details: map[string]any{"events": events}}
	return audited(ctx, a.db, e, func(pgx.Tx) error { return nil })
}

// Rejection is how many requests the API rejected for one reason, within a minute.
type Rejection struct {
	// Actor whose credential may not do what was requested; "unauthenticated" without a right one, or if it was not checked.
	Actor string
	// Address of the client, or its IPv6 /64; "" for many.
	Address string
	// Topic that the requests named; "" for none.
	Topic         string
	Status, Times int
}

// NoteRejections writes rejections into the audit, a row each. ErrUnavailable.
func (a *Access) NoteRejections(ctx context.Context, rejected []Rejection) error {
	err := pgx.BeginFunc(ctx, a.db, func(tx pgx.Tx) error {
		for _, r := range rejected {
			by := WithActor(ctx, Actor{Name: r.Actor, Address: r.Address})
			e := auditEntry{action: auditRejected, topic: r.Topic, details: map[string]any{"status": r.Status, "times": r.Times}}
			if err := audit(by, tx, e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && IsOutage(err) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}
