package terminal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// errNotConfirmed ends a verb whose question was not answered with yes.
var errNotConfirmed = errors.New("nothing was changed")

// ConfirmFlag is for verbs that cannot be undone.
type ConfirmFlag struct {
	Yes bool `help:"Do not ask for confirmation. Required if standard input is not a terminal."`
}

// Confirm asks on a terminal, and requires --yes elsewhere. question says what will be lost; it is not called with
// --yes.
func (f ConfirmFlag) Confirm(question func() (string, error)) error {
	if f.Yes {
		return nil
	}
	if !IsTerminal(os.Stdin) {
		return Usagef("this cannot be undone, and standard input is not a terminal to ask for confirmation on: add --yes")
	}
	text, err := question()
	if err != nil {
		return err
	}
	return AskYes(text)
}

// AskYes asks a question on the terminal. Everything but y and yes means no.
func AskYes(question string) error {
	fmt.Fprintf(os.Stderr, "%s [y/N] ", PlainLines(question))
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return errNotConfirmed
	}
	return nil
}
