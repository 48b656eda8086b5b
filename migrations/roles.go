package migrations

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// ReaderRole may read every view of schema postrider and nothing else.
	ReaderRole = "postrider_reader"
	// PublisherRole is for programs that publish from SQL; it may read nothing.
	PublisherRole = "postrider_publisher"
	// consumerRole is for programs that receive events in SQL; it reads no view.
	consumerRole = "postrider_consumer"
	// OperatorRole is for people on call: it reads every view and calls the functions that act on deliveries and dead
	// letters.
	OperatorRole = "postrider_operator"
)

// Roles belong to the whole server, so two databases that migrate at the same moment race: "exists already" and the
// catalog's own conflict (23505) are success. The last statement is for the service's role, %[1]s: `postrider sql`
// becomes the reader. From PostgreSQL 16 on, a role must grant a role that it creates even to itself.
const createRoles = `
DO $$ DECLARE missing text; BEGIN
FOR missing IN SELECT name FROM pg_catalog.unnest('{postrider_reader,postrider_publisher,postrider_consumer,
postrider_operator}'::text[]) AS name WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = name) LOOP
    BEGIN EXECUTE 'CREATE ROLE ' || missing; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END;
END LOOP; END $$;
DO $$ BEGIN IF NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = %[2]s)
THEN GRANT postrider_reader TO %[1]s; END IF;
EXCEPTION WHEN insufficient_privilege OR invalid_grant_operation OR unique_violation THEN NULL; END $$;`

// Views run with their owner's rights, so the reader needs nothing in postrider_internal.
const grantRoles = `
REVOKE ALL ON SCHEMA postrider_internal FROM PUBLIC;
GRANT USAGE ON SCHEMA postrider TO postrider_reader, postrider_publisher, postrider_consumer, postrider_operator;
GRANT SELECT ON ALL TABLES IN SCHEMA postrider TO postrider_reader, postrider_operator;
GRANT EXECUTE ON FUNCTION postrider.publish, postrider.publish_batch, postrider.publish_data,
    postrider.publish_row_change TO postrider_publisher;
GRANT EXECUTE ON FUNCTION postrider.receive, postrider.acknowledge, postrider.release_locks, postrider.reject,
    postrider.renew TO postrider_consumer;
GRANT EXECUTE ON FUNCTION postrider.redeliver, postrider.purge, postrider.count_dead_letters, postrider.redeliver_all,
    postrider.purge_all, postrider.redeliver_events, postrider.count_events,
    postrider.cancel_operation TO postrider_operator;
GRANT EXECUTE ON FUNCTION postrider.cancel, postrider.retry_now, postrider.dead_letter_now, postrider.pause,
    postrider.resume, postrider.release, postrider.test_delivery,
    postrider.erase_event, postrider.erase_subject TO postrider_operator;`

// ensureRoles creates the roles with admin, and grants them their rights as the owner of the schema.
func ensureRoles(ctx context.Context, pool, admin *pgxpool.Pool, notices io.Writer) error {
	var role, quoted string
	const query = "SELECT pg_catalog.quote_ident(current_user), pg_catalog.quote_literal(current_user)"
	if err := pool.QueryRow(ctx, query).Scan(&role, &quoted); err != nil {
		return fmt.Errorf("read the name of the role: %w", err)
	}
	create := fmt.Sprintf(createRoles, role, quoted)
	_, err := admin.Exec(ctx, create)
	if err == nil {
		_, err = pool.Exec(ctx, grantRoles)
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && (pgErr.Code == "42501" || pgErr.Code == "42704") {
		_, err = fmt.Fprintf(notices,
			"The roles %s, %s, %s and %s were not set up (%s). An administrator may run:\n%s\n%s\n",
			ReaderRole, PublisherRole, consumerRole, OperatorRole, pgErr.Message, create, grantRoles)
		return err
	}
	if err != nil {
		return fmt.Errorf("set up the roles: %w", err)
	}
	return nil
}
