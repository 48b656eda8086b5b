package bench

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"time"

	"postrider/cmd/postrider/app"
	"postrider/postgres"
	"postrider/query"
)

// retention measures while everything is kept, and then while days whose time is over are removed: each as large as
// what was published and delivered so far.
func (b *run) retention(ctx context.Context) error {
	target, err := b.newTopic(ctx, "bench", b.at("sink", "/"))
	if err != nil {
		return err
	}
	if err := b.measure(ctx, phase{name: "keeping everything", target: target}); err != nil {
		return err
	}
	if err := b.oldDays(ctx); err != nil {
		return err
	}
	remove := func(ctx context.Context) error {
		if !pause(ctx, b.o.Duration/4) {
			return nil
		}
		return b.removeDays(ctx)
	}
	return b.measure(ctx, phase{name: fmt.Sprintf("removing %d days", b.o.Days), target: target, also: remove})
}

// The tables that have a partition for each day.
var dayTables = []string{"events", "delivery_history", "delivery_attempts"}

// oldDays copies what there is of today to days of last year. The copies are nobody's.
func (b *run) oldDays(ctx context.Context) error {
	began := time.Now()
	for day := range b.o.Days {
		for _, table := range dayTables {
			if _, err := b.conn.Exec(ctx, fmt.Sprintf(copyDay, table, day)); err != nil {
				return fmt.Errorf("make an old day of %s: %w", table, err)
			}
		}
	}
	b.say("%d old days made in %.1f s", b.o.Days, time.Since(began).Seconds())
	return nil
}

const copyDay = `
DO $$
DECLARE
    today date := (now() AT TIME ZONE 'UTC')::date;
    day date := today - 365 + %[2]d;
    part text := 'postrider_internal.%[1]s_' || to_char(day, 'YYYYMMDD');
    columns text;
BEGIN
    EXECUTE format('CREATE TABLE %%s PARTITION OF postrider_internal.%[1]s FOR VALUES FROM (%%L) TO (%%L)', part, day,
        day + 1);
    SELECT string_agg(CASE a.attname WHEN 'day' THEN quote_literal(day) || '::date' WHEN 'topic_id'
        THEN '0' WHEN 'subscription_id' THEN '0' ELSE quote_ident(a.attname) END, ', ' ORDER BY a.attnum)
      INTO columns FROM pg_attribute a WHERE a.attrelid = part::regclass AND a.attnum > 0 AND NOT a.attisdropped;
    EXECUTE format('INSERT INTO %%s SELECT %%s FROM postrider_internal.%[1]s WHERE day = %%L', part, columns, today);
END $$`

// removeDays does what the service does each minute.
func (b *run) removeDays(ctx context.Context) error {
	pool, err := postgres.OpenPool(ctx, b.databaseURL, 2)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer pool.Close()
	key, err := base64.StdEncoding.DecodeString(b.encryptionKey)
	if err != nil {
		return fmt.Errorf("read the encryption key: %w", err)
	}
	sealer, err := postgres.NewSealer(key)
	if err != nil {
		return err
	}
	s, err := app.New(ctx, app.Options{Pool: pool, Sealer: sealer, Logger: slog.New(slog.DiscardHandler), Node: "bench"})
	if err != nil {
		return err
	}
	began := time.Now()
	if err := s.Maintenance.Retain(ctx, query.Retention{DeliveredDays: 30, AttemptsDays: 30}); err != nil {
		return fmt.Errorf("remove old days: %w", err)
	}
	b.say("%d days removed in %.1f s", b.o.Days, time.Since(began).Seconds())
	const query = `SELECT count(*) FROM pg_class WHERE relnamespace = 'postrider_internal'::regnamespace AND relkind = 'r'
		    AND relname ~ '^(events|delivery_history|delivery_attempts)_[0-9]{8}$'
		AND to_date(right(relname, 8), 'YYYYMMDD') < (now() AT TIME ZONE 'UTC')::date - 30`
	var left int
	if err := b.conn.QueryRow(ctx, query).Scan(&left); err != nil {
		return fmt.Errorf("look for old days: %w", err)
	}
	if left > 0 {
		return fmt.Errorf("%d old days are still there", left)
	}
	return nil
}
