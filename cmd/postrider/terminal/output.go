package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// OutputFlag is -o of each verb that prints data.
type OutputFlag struct {
	Output string `short:"o" help:"table, json or yaml." enum:"table,json,yaml" default:"table"`
}

// Print writes a value in the form of -o; table writes it for people.
func (f OutputFlag) Print(value any, table func(io.Writer)) error {
	var encoded []byte
	var err error
	switch f.Output {
	case "json":
		encoded, err = json.MarshalIndent(value, "", "  ")
		encoded = append(encoded, '\n')
	case "yaml":
		encoded, err = encodeYAML(value)
	default:
		w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
		table(w)
		return w.Flush()
	}
	if err == nil {
		_, err = fmt.Print(EscapeControls(string(encoded)))
	}
	return err
}

// EncodeLine writes a value of a stream: JSON in one line, YAML as a document.
func EncodeLine(form string, value any) (string, error) {
	encoded, err := EncodePlainly(value)
	if form == "yaml" && err == nil {
		encoded, err = encodeYAML(value)
		encoded = append([]byte("---\n"), bytes.TrimSpace(encoded)...)
	}
	return EscapeControls(string(encoded)) + "\n", err
}

// PrintOne prints a value in one line: text as a table.
func (f OutputFlag) PrintOne(value any, text string) error {
	if f.Output == "table" {
		_, err := fmt.Println(text)
		return err
	}
	line, err := EncodeLine(f.Output, value)
	if err == nil {
		_, err = fmt.Print(line)
	}
	return err
}

// Done prints what a verb has done: in a line, or as what there is now, which is read only then.
func (f OutputFlag) Done(now func() (any, error), format string, args ...any) error {
	if f.Output == "table" {
		_, err := fmt.Printf(format+"\n", args...)
		return err
	}
	value, err := now()
	if err != nil {
		return fmt.Errorf("it was done, but how things are now cannot be read: %w", err)
	}
	return f.Print(value, nil)
}

// Deleted is what there is of something that was deleted.
func Deleted(namesAndValues ...string) func() (any, error) {
	return func() (any, error) {
		o := map[string]any{"deleted": true}
		for pair := range slices.Chunk(namesAndValues, 2) {
			o[pair[0]] = pair[1]
		}
		return o, nil
	}
}

// PrintNamed writes a name and its value in each line.
func PrintNamed(w io.Writer, namesAndValues ...any) {
	for pair := range slices.Chunk(namesAndValues, 2) {
		if at, ok := pair[1].(time.Time); ok {
			pair[1] = Time(at)
		}
		fmt.Fprintf(w, "%v\t%s\n", pair[0], Cell(pair[1]))
	}
}
