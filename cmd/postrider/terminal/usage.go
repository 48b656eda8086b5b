package terminal

import (
	"fmt"
)

// UsageError is a value on the command line or in the environment that cannot be used.
type UsageError struct{ message string }

// Error is what is wrong.
func (e *UsageError) Error() string { return e.message }

// Usagef is the error of wrong usage: exit code 2.
func Usagef(format string, args ...any) error {
	return &UsageError{message: fmt.Sprintf(format, args...)}
}

// ExitError ends the program with a code of its own; what there is to say was said.
type ExitError struct{ Code int }

// Error is for whoever prints it all the same.
func (e *ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }
