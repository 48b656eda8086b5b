package filter

// ValidationError says what is wrong with a value that a user or program passed. Field is the JSON path of the
// property. Message continues it as a sentence. Both may be shown to the caller.
type ValidationError struct {
	Field   string
	Message string
}

// Error returns "field: message".
func (e *ValidationError) Error() string { return e.Field + ": " + e.Message }
