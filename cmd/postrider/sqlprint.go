package main

import (
	"bytes"
	"database/sql/driver"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// keepNumbers has every digit of a number in JSON printed: a float64 has 15 to 17 of them.
func keepNumbers(types *pgtype.Map) {
	exactly := func(data []byte, into any) error {
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		return decoder.Decode(into)
	}
	types.RegisterType(&pgtype.Type{Name: "json", OID: pgtype.JSONOID, Codec: &pgtype.JSONCodec{Marshal: json.Marshal, Unmarshal: exactly}})
	types.RegisterType(&pgtype.Type{Name: "jsonb", OID: pgtype.JSONBOID, Codec: &pgtype.JSONBCodec{Marshal: json.Marshal, Unmarshal: exactly}})
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
			cells[i] = cell(values[i])
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
	_, err := fmt.Fprintf(out, "(%s)\n", plural(count, "row"))
	return err
}

// printCSV prints a line of names and one for each row (RFC 4180). Values are whole; control characters in them are spaces.
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
			record[i] = plainLines(plainText(values[i]))
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

const maxCell = 80

// cell is a value on one line of a terminal: what others wrote must not move the cursor or colour the screen.
func cell(value any) string {
	text := oneLine(plainText(value))
	if utf8.RuneCountInString(text) > maxCell {
		return string([]rune(text)[:maxCell-1]) + "…"
	}
	return text
}

// plainText is a value as a person writes it.
func plainText(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case time.Time:
		return v.UTC().Format("2006-01-02 15:04:05.000Z")
	case [16]byte:
		return fmt.Sprintf("%x-%x-%x-%x-%x", v[0:4], v[4:6], v[6:8], v[8:10], v[10:])
	case string:
		return v
	case driver.Valuer: // numeric, interval, …: pgx's own types know their text
		plain, err := v.Value()
		if err != nil {
			return fmt.Sprint(v)
		}
		return plainText(plain)
	case map[string]any, []any:
		encoded, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		return string(encoded)
	default:
		return fmt.Sprint(v)
	}
}

func oneLine(text string) string { return strings.ReplaceAll(plainLines(text), "\n", " ") }

// escapeControls writes the control characters that JSON lets stand (DEL and C1) as escapes: a terminal obeys them too.
// In an encoded document they can be inside strings only; a line's end can not.
func escapeControls(encoded string) string {
	var out strings.Builder
	for _, r := range encoded {
		if r != '\n' && unicode.IsControl(r) {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// plainLines is an error's text for a terminal. PostgreSQL quotes in its messages what publishers wrote.
func plainLines(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// jsonValue makes what encoding/json writes wrongly or not at all into text: ids, and times beyond the year 9999.
func jsonValue(value any) any {
	switch v := value.(type) {
	case [16]byte:
		return plainText(v)
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
			text, err := encodeLine(form, object)
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
