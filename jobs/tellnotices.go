package jobs

import (
	"context"
	"fmt"
)

// PublishNotices publishes notices to SystemTopic as events, and returns how many there were. All nodes call it each
// second; one of them does it.
func (m *Maintenance) PublishNotices(ctx context.Context) (told int, err error) {
	if !m.cache.Snapshot().HasSystemSubscribers() {
		return 0, nil
	}
	if err := m.db.QueryRow(ctx, "SELECT postrider_internal.tell()").Scan(&told); err != nil {
		return 0, fmt.Errorf("publish notices: %w", err)
	}
	return told, nil
}

// CleanNotices removes notices if SystemTopic has no event subscriptions.
func (m *Maintenance) CleanNotices(ctx context.Context) error {
	const remove = "DELETE FROM postrider_internal.notices WHERE postrider_internal.told_since() IS NULL"
	if _, err := m.db.Exec(ctx, remove); err != nil {
		return fmt.Errorf("remove notices: %w", err)
	}
	return nil
}
