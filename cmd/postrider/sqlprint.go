package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"postrider/cmd/postrider/terminal"
)

// keepNumbers has every digit of a number in JSON printed: a float64 has 15 to 17 of them.
func keepNumbers(types *pgtype.Map) {
	exactly := func(data []byte, into any) error {
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		return decoder.Decode(into)
	}
	types.RegisterType(&pgtype.Type{
		Name: "json", OID: pgtype.JSONOID, Codec: &pgtype.JSONCodec{Marshal: json.Marshal, Unmarshal: exactly},
	})
	types.RegisterType(&pgtype.Type{
		Name: "jsonb", OID: pgtype.JSONBOID, Codec: &pgtype.JSONBCodec{Marshal: json.Marshal, Unmarshal: exactly},
	})
}

// someRows are the rows of a query, or such as are in memory already.
type someRows interface {
	Next() bool
	Values() ([]any, error)
	Err() error
}

// listedRows are in memory.
type listedRows struct {
	rows [][]any
	next int
}

// Next goes to the next row.
func (l *listedRows) Next() bool { l.next++; return l.next <= len(l.rows) }

// Values are those of the row; there may be more than are printed.
func (l *listedRows) Values() ([]any, error) { return l.rows[l.next-1], nil }

// Err is nil.
func (l *listedRows) Err() error { return nil }

// printRows prints rows in one of the forms table, json, yaml and csv.
func printRows(out io.Writer, form string, names []string, rows someRows) error {
	if len(names) == 0 && !rows.Next() { // refused before there was a column, or a statement that answers nothing
		return rows.Err()
	}
	as := map[string]func(io.Writer, []string, someRows) error{
		"table": printTable, "json": printObjects("json"), "yaml": printObjects("yaml"), "csv": printCSV,
	}[form]
	return as(out, names, rows)
}

func printTable(out io.Writer, names []string, rows someRows) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(names, "\t"))
	count := 0
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return fmt.Errorf("read a row: %w", err)
		}
		cells := make([]string, len(names))
		for i := range names {
			cells[i] = terminal.Cell(values[i])
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
		count++
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the rows: %w", err)
	}
	_, err := fmt.Fprintf(out, "(%s)\n", terminal.Plural(count, "row"))
	return err
}

// printCSV prints a line of names and one for each row (RFC 4180). Values are whole; control characters in them are
// spaces.
func printCSV(out io.Writer, names []string, rows someRows) error {
	w := csv.NewWriter(out)
	err := w.Write(names)
	for err == nil && rows.Next() {
		var values []any
		if values, err = rows.Values(); err != nil {
			return fmt.Errorf("read a row: %w", err)
		}
		record := make([]string, len(names))
		for i := range names {
			record[i] = terminal.PlainLines(terminal.PlainText(values[i]))
		}
		err = w.Write(record)
	}
	w.Flush()
	if err == nil {
		err = w.Error()
	}
	if err != nil {
		return fmt.Errorf("print the rows: %w", err)
	}
	return rows.Err()
}

func columnNames(rows pgx.Rows) []string {
	fields := rows.FieldDescriptions()
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}

// jsonValue makes what encoding/json writes wrongly or not at all into text: ids, and times beyond the year 9999.
func jsonValue(value any) any {
	switch v := value.(type) {
	case [16]byte:
		return terminal.PlainText(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	default:
		return value
	}
}

func printObjects(form string) func(io.Writer, []string, someRows) error {
	return func(out io.Writer, names []string, rows someRows) error {
		for rows.Next() {
			values, err := rows.Values()
			if err != nil {
				return fmt.Errorf("read a row: %w", err)
			}
			object := make(map[string]any, len(names))
			for i, name := range names {
				object[name] = jsonValue(values[i])
			}
			text, err := terminal.EncodeLine(form, object)
			if err == nil {
				_, err = io.WriteString(out, text)
			}
			if err != nil {
				return fmt.Errorf("print a row: %w", err)
			}
		}
		return rows.Err()
	}
}
