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
	// ConsumerRole is for programs that receive events in SQL; it reads no view.
	ConsumerRole = "postrider_consumer"
	// OperatorRole is for people on call: it reads every view and calls the functions that act on deliveries and dead
	// letters.
	OperatorRole = "postrider_operator"
)

// Roles belong to the whole server, so two databases that migrate at the same moment race: "exists already" and the
// catalog's own conflict (23505) are success.
//
// `postrider sql` becomes the reader. From PostgreSQL 16 on, a role must grant a role that it creates even to itself.
const createRoles = `
DO $$ BEGIN CREATE ROLE postrider_reader NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
DO $$ BEGIN CREATE ROLE postrider_publisher NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END $$;
DO $$ BEGIN CREATE ROLE postrider_consumer NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END $$;
DO $$ BEGIN CREATE ROLE postrider_operator NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END $$;
DO $$ BEGIN IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
THEN GRANT postrider_reader TO CURRENT_USER; END IF;
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

func ensureRoles(ctx context.Context, pool *pgxpool.Pool, notices io.Writer) error {
	for _, script := range []string{createRoles, grantRoles} {
		_, err := pool.Exec(ctx, script)
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) && (pgErr.Code == "42501" || pgErr.Code == "42704") {
			_, err = fmt.Fprintf(notices,
				"The roles %s, %s, %s and %s were not set up (%s). An administrator may run:\n%s\n%s\n",
				ReaderRole, PublisherRole, ConsumerRole, OperatorRole, pgErr.Message, createRoles, grantRoles)
			return err
		}
		if err != nil {
			return fmt.Errorf("set up the roles: %w", err)
		}
	}
	return nil
}
