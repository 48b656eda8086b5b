package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"iter"
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

// valuesOf returns the values of each row.
func valuesOf(rows pgx.Rows) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		for rows.Next() {
			if values, err := rows.Values(); !yield(values, err) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(nil, err)
		}
	}
}

// printRows prints rows as table, json, yaml or csv. A row may have more values than are printed.
func printRows(out io.Writer, form string, names []string, rows iter.Seq2[[]any, error]) error {
	if len(names) == 0 { // rejected before there was a column, or a statement without a result
		for _, err := range rows {
			return err
		}
		return nil
	}
	switch form {
	case "table":
		return printTable(out, names, rows)
	case "csv":
		return printCSV(out, names, rows)
	default:
		return printObjects(out, form, names, rows)
	}
}

func printTable(out io.Writer, names []string, rows iter.Seq2[[]any, error]) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(names, "\t"))
	count := 0
	for values, err := range rows {
		if err != nil {
			return err
		}
		cells := make([]string, len(names))
		for i := range names {
			cells[i] = terminal.Cell(values[i])
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
		count++
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the rows: %w", err)
	}
	_, err := fmt.Fprintf(out, "(%s)\n", terminal.Plural(count, "row"))
	return err
}

// printCSV prints a line of names and one for each row (RFC 4180). Values are whole; control characters in them are
// spaces.
func printCSV(out io.Writer, names []string, rows iter.Seq2[[]any, error]) error {
	w := csv.NewWriter(out)
	_ = w.Write(names)
	for values, err := range rows {
		if err != nil {
			w.Flush()
			return err
		}
		record := make([]string, len(names))
		for i := range names {
			record[i] = terminal.PlainLines(terminal.PlainText(values[i]))
		}
		if err := w.Write(record); err != nil {
			return fmt.Errorf("print the rows: %w", err)
		}
	}
	w.Flush()
	return w.Error()
}

// printObjects prints an object for each row.
func printObjects(out io.Writer, form string, names []string, rows iter.Seq2[[]any, error]) error {
	for values, err := range rows {
		if err != nil {
			return err
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
	return nil
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
