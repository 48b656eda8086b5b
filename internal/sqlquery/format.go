package sqlquery

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Writer writes the rows of a result in a format. Close completes the text; it does not close the destination.
type Writer interface {
	Columns(columns []Column) error
	Row(row []*string) error
	Close() error
}

// Download runs a query without a limit of rows and writes its result. The errors are those of Run, or out's.
func (r *Runner) Download(ctx context.Context, q Request, out Writer) error {
	if err := r.Stream(ctx, q, out.Columns, out.Row); err != nil {
		return err
	}
	return out.Close()
}

// numeric are the types whose text is a number in CSV and JSON, except NaN and Infinity.
var numeric = []string{"smallint", "integer", "bigint", "numeric", "real", "double precision"}

// IsNumeric reports whether the column has numbers.
func (c Column) IsNumeric() bool {
	name, _, _ := strings.Cut(c.Type, "(") // numeric(10,2)
	return slices.Contains(numeric, name)
}

// csvWriter writes RFC 4180 with a header. A spreadsheet would run a text that begins with one of = + - @ as a formula,
// so an apostrophe stands before it.
type csvWriter struct {
	lines   *csv.Writer
	columns []Column
}

// NewCSV returns a Writer of CSV.
func NewCSV(w io.Writer) Writer { return &csvWriter{lines: csv.NewWriter(w)} }

// Columns writes the header.
func (w *csvWriter) Columns(columns []Column) error {
	w.columns = columns
	cells := make([]string, len(columns))
	for i, c := range columns {
		cells[i] = CSVCell(c.Name)
	}
	return w.lines.Write(cells)
}

// Row writes a line. NULL is an empty cell.
func (w *csvWriter) Row(row []*string) error {
	cells := make([]string, len(row))
	for i, value := range row {
		switch {
		case value == nil:
		case w.columns[i].IsNumeric():
			cells[i] = *value
		default:
			cells[i] = CSVCell(*value)
		}
	}
	return w.lines.Write(cells)
}

// Close writes what is buffered.
func (w *csvWriter) Close() error {
	w.lines.Flush()
	return w.lines.Error()
}

// CSVCell is a text of a cell that no spreadsheet runs as a formula.
func CSVCell(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}

// jsonWriter writes an array of objects.
type jsonWriter struct {
	out     *bufio.Writer
	columns []Column
	names   []string // as JSON
	rows    int
}

// NewJSON returns a Writer of a JSON array of objects. Numbers, booleans and JSON have their JSON type, other values
// are strings.
func NewJSON(w io.Writer) Writer { return &jsonWriter{out: bufio.NewWriter(w)} }

// Columns begins the array. A further column of a name gets a number: n, n_2, n_3.
func (w *jsonWriter) Columns(columns []Column) error {
	w.columns = columns
	used := map[string]bool{}
	for _, c := range columns {
		name := c.Name
		for n := 2; used[name]; n++ {
			name = fmt.Sprintf("%s_%d", c.Name, n)
		}
		used[name] = true
		text, err := json.Marshal(name)
		if err != nil {
			return err
		}
		w.names = append(w.names, string(text))
	}
	_, err := w.out.WriteString("[")
	return err
}

// Row writes an object.
func (w *jsonWriter) Row(row []*string) error {
	separator := ",\n{"
	if w.rows == 0 {
		separator = "\n{"
	}
	w.rows++
	_, _ = w.out.WriteString(separator) // Flush returns the error
	for i, value := range row {
		if i > 0 {
			_ = w.out.WriteByte(',')
		}
		text, err := w.columns[i].JSON(value)
		if err != nil {
			return err
		}
		_, _ = w.out.WriteString(w.names[i] + ":" + string(text))
	}
	_, err := w.out.WriteString("}")
	return err
}

// Close ends the array.
func (w *jsonWriter) Close() error {
	_, _ = w.out.WriteString("\n]\n")
	return w.out.Flush()
}

// JSON is a value of the column as JSON.
func (c Column) JSON(value *string) (json.RawMessage, error) {
	switch {
	case value == nil:
		return json.RawMessage("null"), nil
	case c.Type == "boolean":
		return json.RawMessage(map[bool]string{true: "true", false: "false"}[*value == "t"]), nil
	case (c.IsNumeric() || c.Type == "json" || c.Type == "jsonb") && json.Valid([]byte(*value)):
		return json.RawMessage(*value), nil
	default:
		return json.Marshal(*value)
	}
}
