package store

import (
	"context"
	"fmt"
)

// TellNotices makes events of what was noted, publishes them to SystemTopic as publishers by SQL do, and answers how many there were.
// Every node calls it each second; one of them does it.
func (s *Store) TellNotices(ctx context.Context) (told int, err error) {
	if !s.Catalogue().someoneIsTold() {
		return 0, nil
	}
	if err := s.db.QueryRow(ctx, "SELECT postrider_internal.tell()").Scan(&told); err != nil {
		return 0, fmt.Errorf("tell what was noted: %w", err)
	}
	return told, nil
}

// CleanNotices removes what was noted and nobody is left to be told of.
func (s *Store) CleanNotices(ctx context.Context) error {
	if _, err := s.db.Exec(ctx, "DELETE FROM postrider_internal.notices WHERE postrider_internal.told_since() IS NULL"); err != nil {
		return fmt.Errorf("remove notices for nobody: %w", err)
	}
	return nil
}
