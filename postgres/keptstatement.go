package postgres

// KeptStatement is a statement whose plan is kept, and what its transaction sets before it.
type KeptStatement struct{ SQL, Settings string }
