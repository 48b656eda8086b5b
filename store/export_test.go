package store

// StepRoutesBy makes the steps of routes small, so that a test has many of them.
func (s *Store) StepRoutesBy(deliveries int) { s.router.limit = deliveries }
