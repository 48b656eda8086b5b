// Package terminal has the input and output of verbs: output formats, values in one line, times, progress,
// confirmations, and errors of wrong usage.
package terminal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// Streams are the standard streams of a verb. The entry point passes them to Run, so that tests run verbs in process.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// ProgressLine is one line of a terminal that shows progress and is rewritten in place.
type ProgressLine struct {
	out   io.Writer // nil: standard error is not a terminal, and nothing is shown
	shown time.Time
}

// NewProgressLine returns a line on standard error, if that is a terminal.
func NewProgressLine(stderr io.Writer) *ProgressLine {
	if !IsTerminal(stderr) {
		return &ProgressLine{}
	}
	return &ProgressLine{out: stderr}
}

// showInterval is the minimum time between two changes of the progress line.
const showInterval = 250 * time.Millisecond

// Show rewrites the line, at most once per showInterval. It calls text only if it does.
func (p *ProgressLine) Show(text func() string) {
	if p.out == nil || time.Since(p.shown) < showInterval {
		return
	}
	p.shown = time.Now()
	fmt.Fprint(p.out, clearLine+text())
}

// End clears the line.
func (p *ProgressLine) End() {
	if p.out != nil && !p.shown.IsZero() {
		fmt.Fprint(p.out, clearLine)
	}
}

// clearLine moves the cursor to the beginning of the line and clears it.
const clearLine = "\r\x1b[K"

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

const progressWidth = 24

// Bar is a progress bar; "" if all is unknown (0).
func Bar[N int | int64](done, all N) string {
	if all <= 0 {
		return ""
	}
	full := int(min(done*progressWidth/all, progressWidth))
	return "[" + strings.Repeat("=", full) + strings.Repeat(" ", progressWidth-full) + "] "
}

// Await calls do. After a second it shows on standard error, if that is a terminal, what it waits for.
func Await(stderr io.Writer, what string, do func() error) error {
	line := NewProgressLine(stderr)
	defer line.End()
	began, done := time.Now(), make(chan error, 1)
	go func() { done <- do() }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			line.Show(func() string { return fmt.Sprintf("waiting until %s: %.0f s", what, time.Since(began).Seconds()) })
		}
	}
}

// ConfirmFlag is the flag of verbs that cannot be undone.
type ConfirmFlag struct {
	Yes bool `help:"Skip the confirmation. Required if standard input is not a terminal."`
}

// Confirm requests a confirmation on a terminal, and requires --yes elsewhere. question describes what will be lost; it
// is not called with --yes.
func (f ConfirmFlag) Confirm(std Streams, question func() (string, error)) error {
	if f.Yes {
		return nil
	}
	if !IsTerminal(std.In) {
		return Usagef("this cannot be undone, and standard input is not a terminal for a confirmation: add --yes")
	}
	text, err := question()
	if err != nil {
		return err
	}
	return RequireYes(std, text)
}

// RequireYes prints a question and returns an error unless the user types y or yes.
func RequireYes(std Streams, question string) error {
	fmt.Fprintf(std.Err, "%s [y/N] ", PlainLines(question))
	line, err := bufio.NewReader(std.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the confirmation: %w", err)
	}
	if typed := strings.ToLower(strings.TrimSpace(line)); typed != "y" && typed != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}

// ReadFileOrInput is ReadUpTo the size of a request, 1 MiB.
func ReadFileOrInput(stdin io.Reader, name string) ([]byte, error) {
	return ReadUpTo(stdin, name, 1<<20)
}

// ReadUpTo reads a file, or standard input for -, of up to most bytes.
func ReadUpTo(stdin io.Reader, name string, most int64) ([]byte, error) {
	in := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, Usagef("%v", err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	body, err := io.ReadAll(io.LimitReader(in, most+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(body)) > most {
		return nil, Usagef("%s: must have at most %d bytes", name, most)
	}
	return body, nil
}

// usageError is an invalid value on the command line or in the environment.
type usageError string

func (e usageError) Error() string { return string(e) }

// Usagef returns an error of wrong usage: exit code 2.
func Usagef(format string, args ...any) error { return usageError(fmt.Sprintf(format, args...)) }

// Usage implements the interface of IsUsage.
func (usageError) Usage() bool { return true }

// IsUsage reports whether an error is one of wrong usage, by its method Usage.
func IsUsage(err error) bool {
	wrong, is := errors.AsType[interface {
		error
		Usage() bool
	}](err)
	return is && wrong.Usage()
}

// ExitError ends the program with this exit code and prints nothing.
type ExitError struct{ Code int }

// Error implements error.
func (e *ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }
