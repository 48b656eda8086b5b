package store

// StepRoutesBy makes the steps of routes small, so that a test has many of them.
func (s *Store) StepRoutesBy(deliveries int) { s.router.limit = deliveries }

// LookBackSlowly makes every look back of this store's pumps a slow one.
func (s *Store) LookBackSlowly() { s.cutters.slow = 0 }
