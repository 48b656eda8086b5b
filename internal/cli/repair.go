package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"postrider/internal/cli/rest"
	"postrider/internal/jsonscan"
	"postrider/internal/operator"
	"postrider/internal/query"
	"postrider/internal/terminal"
)

type deadletterEditCmd struct {
	rest.Flags
	terminal.ConfirmFlag
	targetFlags
	rowArg[query.DeadLetter]
	Event  string `help:"Take the edited event from this file instead of an editor; - is standard input." placeholder:"FILE"`
	Format bool   `help:"Indent the event before the editor opens. Without it you edit the text as stored."`
}

// Help is shown by deadletter edit --help.
func (deadletterEditCmd) Help() string {
	return `Opens $VISUAL or $EDITOR, shows the changes and asks for confirmation. The edited event is a new event, which
only this event subscription receives, whatever its filter. The original and its dead letter stay. If the event is
invalid, the editor opens again with the reason in its first line.

Examples:
  postrider deadletter edit 0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60
  postrider deadletter edit 0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60 --event edited.json --yes`
}

func (c *deadletterEditCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	settings, err := c.settings()
	if err != nil {
		return err
	}
	text, err := terminal.EncodePlainly(settings)
	if err != nil {
		return err
	}
	at := c.Path()
	var found struct {
		Event         json.RawMessage `json:"event"`
		ETag          string          `json:"etag"`
		RedeliveredAt *time.Time      `json:"redeliveredAt"`
	}
	if err := client.Call(ctx, http.MethodGet, at, nil, &found); err != nil {
		return err
	}
	if len(found.Event) == 0 {
		return errors.New("the event was erased: it cannot be edited")
	}
	if found.RedeliveredAt != nil && !c.Again {
		return fmt.Errorf("the dead letter was redelivered at %s; use --again to redeliver it once more",
			terminal.Time(*found.RedeliveredAt))
	}
	var sent rest.Object
	send := func(edited []byte) error { // byte for byte
		body := fmt.Appendf(nil, `%s,"event":%s}`, bytes.TrimSuffix(text, []byte("}")), edited)
		return client.Call(ctx, http.MethodPost, at+"/redeliver", rest.Raw(body), &sent, "If-Match", found.ETag)
	}
	before := bytes.NewBuffer(found.Event)
	if c.Format {
		before = new(bytes.Buffer)
		if err := json.Indent(before, found.Event, "", "  "); err != nil {
			return fmt.Errorf("read the event: %w", err)
		}
	}
	if c.Event != "" {
		err = c.sendFile(std, before.Bytes(), send)
	} else {
		err = c.sendEdited(ctx, std, append(before.Bytes(), '\n'), send)
	}
	if err != nil {
		return err
	}
	return c.Print(std.Out, sent, func(w io.Writer) {
		fmt.Fprintf(w, "Redelivered as delivery %v.\n", sent["deliveryId"])
	})
}

// sendFile sends the event of --event.
func (c *deadletterEditCmd) sendFile(std terminal.Streams, before []byte, send func([]byte) error) error {
	edited, err := terminal.ReadFileOrInput(std.In, c.Event)
	if err != nil {
		return err
	}
	edited = bytes.TrimSpace(edited)
	if problem := jsonProblem(edited); problem != "" {
		return fmt.Errorf("%s is not JSON: %s", terminal.Either(c.Event == "-", "standard input", c.Event), problem)
	}
	if err := c.confirm(std, before, edited); err != nil {
		return err
	}
	return send(edited)
}

// sendEdited opens the editor until the event is valid and sent. Without a change nothing is sent.
func (c *deadletterEditCmd) sendEdited(
	ctx context.Context, std terminal.Streams, before []byte, send func([]byte) error,
) error {
	edited, problem := before, ""
	for {
		saved, err := editText(ctx, std, edited, problem)
		switch {
		case err != nil:
			return err
		case bytes.Equal(saved, edited):
			return errors.New("nothing was changed")
		}
		edited = saved
		if problem = jsonProblem(edited); problem != "" {
			continue
		}
		if err := c.confirm(std, before, edited); err != nil {
			return err
		}
		err = send(bytes.TrimSpace(edited))
		if !rest.IsStatus(err, http.StatusBadRequest) {
			return err
		}
		problem = err.Error()
	}
}

// confirm shows the changes and requests a confirmation.
func (c *deadletterEditCmd) confirm(std terminal.Streams, before, after []byte) error {
	var text strings.Builder
	for _, change := range operator.Diff(before, after) {
		printChange(&text, change.Path, string(change.Before), string(change.After))
	}
	fmt.Fprint(std.Err, terminal.PlainLines(cmp.Or(text.String(), "Only white space or the order of members.\n")))
	return c.Confirm(std, func() (string, error) { return "Redeliver the edited event? The original stays.", nil })
}

// jsonProblem is what is wrong with a text that should be JSON, and where; "" if nothing.
func jsonProblem(text []byte) string {
	s := jsonscan.Scanner{Text: text}
	s.Space()
	ok := s.Value()
	if ok && s.Space() != 0 {
		ok, s.Problem = false, "the text continues after its end"
	}
	if ok {
		return ""
	}
	line, column := jsonscan.Position(text, s.Pos)
	return fmt.Sprintf("line %d, column %d: %s", line, column, s.Problem)
}

// editText opens an editor with a text, below the problem if there is one, and returns the saved text.
func editText(ctx context.Context, std terminal.Streams, text []byte, problem string) ([]byte, error) {
	folder, err := os.MkdirTemp("", "postrider-")
	if err != nil {
		return nil, fmt.Errorf("create a file for the editor: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	file := filepath.Join(folder, "event.json")
	if problem != "" {
		text = append([]byte("# "+strings.ReplaceAll(problem, "\n", " ")+"\n"), text...)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, fmt.Errorf("write a file for the editor: %w", err)
	}
	editor := "vi"
	for _, name := range []string{"EDITOR", "VISUAL"} {
		if value := os.Getenv(name); value != "" { // the command of the user
			editor = value
		}
	}
	command := exec.CommandContext(ctx, "sh", "-c", editor+` "$1"`, "sh", file) //nolint:gosec // the user's editor
	command.Stdin, command.Stdout, command.Stderr = std.In, std.Err, std.Err
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("run the editor %s: %w", editor, err)
	}
	saved, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the file of the editor: %w", err)
	}
	for bytes.HasPrefix(saved, []byte("#")) {
		_, saved, _ = bytes.Cut(saved, []byte("\n"))
	}
	return saved, nil
}

type deadletterPatchCmd struct {
	deadLetterFlags
	targetFlags
	MergePatch       string `required:"" help:"JSON merge patch (RFC 7396) in this file; - is standard input." placeholder:"FILE"`
	IncludeUnchanged bool   `help:"Also redeliver events that the patch does not change."`
}

// Help is shown by deadletter patch --help.
func (deadletterPatchCmd) Help() string {
	return `The service counts the dead letters, then changes and redelivers each; what the patch does not name keeps its
bytes. With --dry-run nothing changes: it prints counts, examples of what would fail, and the changes of three events.
The command waits for the end; Ctrl-C stops only the waiting.

Examples:
  postrider deadletter patch --topic orders --search 'error ~ "currency"' --merge-patch currency.json --dry-run
  postrider deadletter patch --ids-from ids.txt --merge-patch currency.json --rate 100`
}

func (c *deadletterPatchCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	filter, err := c.filter(std.In)
	if err == nil {
		err = c.again(filter, &c.targetFlags)
	}
	if err != nil {
		return err
	}
	settings, err := c.settings()
	if err != nil {
		return err
	}
	patch, err := terminal.ReadFileOrInput(std.In, c.MergePatch)
	if err != nil {
		return err
	}
	if problem := jsonProblem(patch); problem != "" {
		return fmt.Errorf("%s is no JSON: %s", c.MergePatch, problem)
	}
	settings["mergePatch"], settings["includeUnchanged"] = json.RawMessage(patch), c.IncludeUnchanged
	if !c.DryRun {
		return c.inBulk(ctx, std, client, "/v1/deadLetters/repair", filter, settings, "dead letter")
	}
	c.complete(filter, settings)
	table := func(w io.Writer, response rest.Object) {
		least := terminal.Either(response["atLeast"] == true, "At least ", "")
		changed := terminal.Plural(integerAt(response, "changed"), "event")
		fmt.Fprintf(w, "%s%s changed, %v unchanged.\n", least, changed, response["unchanged"])
		for _, list := range []string{"failed", "skipped"} {
			for _, cause := range rest.Objects(response, list) {
				would := terminal.Either(list == "failed", "Would fail", "Would be skipped")
				fmt.Fprintf(w, "%s: %v (%v)\n", would, cause["count"], cause["cause"])
				for _, sample := range rest.Objects(cause, "samples") {
					fmt.Fprintf(w, "  %v: %v\n", sample["deadLetterId"], sample["message"])
				}
			}
		}
		for _, diff := range rest.Objects(response, "diffs") {
			fmt.Fprintf(w, "Dead letter %v:\n", diff["deadLetterId"])
			for _, change := range rest.Objects(diff, "changes") {
				printChange(w, rest.TextAt(change, "path"), compact(change, "before"), compact(change, "after"))
			}
		}
	}
	return c.Do(ctx, std, client, http.MethodPost, "/v1/deadLetters/repair", settings, table)
}

// printChange prints one change of an event; "" is no value.
func printChange(w io.Writer, path, before, after string) {
	fmt.Fprintf(w, "  %s: %s -> %s\n", path, cmp.Or(before, "(none)"), cmp.Or(after, "(none)"))
}

// compact is a member as JSON; "" for none.
func compact(o rest.Object, name string) string {
	value, has := o[name]
	if !has {
		return ""
	}
	text, _ := terminal.EncodePlainly(value)
	return string(bytes.TrimSpace(text))
}
