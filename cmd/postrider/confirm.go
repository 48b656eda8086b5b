package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
)

// errNotConfirmed ends a verb whose question was not answered with yes.
var errNotConfirmed = errors.New("nothing was changed")

// confirmFlag is for verbs that cannot be undone.
type confirmFlag struct {
	Yes bool `help:"Do not ask for confirmation. Required if standard input is not a terminal."`
}

// confirm asks on a terminal, and requires --yes elsewhere. question says what will be lost; it is not called with --yes.
func (f confirmFlag) confirm(question func() (string, error)) error {
	if f.Yes {
		return nil
	}
	if !isTerminal(os.Stdin) {
		return usagef("this cannot be undone, and standard input is not a terminal to ask for confirmation on: add --yes")
	}
	text, err := question()
	if err != nil {
		return err
	}
	return askYes(text)
}

// askYes asks a question on the terminal. Everything but y and yes means no.
func askYes(question string) error {
	fmt.Fprintf(os.Stderr, "%s [y/N] ", plainLines(question))
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return errNotConfirmed
	}
	return nil
}

// howMany counts a list as far as one page goes: "3 pending deliveries", "more than 100 pending deliveries".
func (f restFlags) howMany(ctx context.Context, path string, filter object, thing string) (string, error) {
	const most = 100
	client, err := f.client()
	if err != nil {
		return "", err
	}
	list, err := client.first(ctx, path, filter, most+1)
	if err != nil {
		return "", err
	}
	return either(len(list) > most, "more than ", "") + plural(min(len(list), most), thing), nil
}

// idURL is the path of something that has an id.
func idURL(list string, id any) string { return list + "/" + url.PathEscape(fmt.Sprint(id)) }
