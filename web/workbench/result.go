package workbench

import (
	"encoding/json"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"postrider/internal/sqlquery"
	"postrider/web/display"
)

// result is the result of a query as a table.
type result struct {
	Columns []column
	Rows    [][]cell
	More    bool
	Took    string
}

// column is a column of a result.
type column struct {
	sqlquery.Column
	Number bool // aligned to the right and sorted by value
}

// cell is a value of a result.
type cell struct {
	Null bool
	Text string
	// Href is the page of what an id names; "" if it has none.
	Href string
	// Short is the beginning of a long text; "" shows the text itself. Pretty is the text with line ends, if it is JSON.
	Short, Pretty string
}

// shortText is the length of the longest text that a cell shows unfolded.
const shortText = 100

// maxPretty is the longest JSON, in bytes, that a cell shows with line ends.
const maxPretty = 256 << 10

func resultOf(found *sqlquery.Result) *result {
	r := &result{
		More: found.More, Took: display.Milliseconds(float64(found.Took) / float64(time.Millisecond)),
		Rows: make([][]cell, len(found.Rows)),
	}
	at := map[string]int{}
	for i, c := range found.Columns {
		r.Columns = append(r.Columns, column{c, c.IsNumeric() || c.Type == "oid"})
		at[c.Name] = i
	}
	for i, row := range found.Rows {
		r.Rows[i] = make([]cell, len(row))
		for j, value := range row {
			r.Rows[i][j] = cellOf(value)
			r.Rows[i][j].Href = hrefOf(found.Columns[j].Name, row[j], func(name string) string {
				if k, ok := at[name]; ok && row[k] != nil {
					return *row[k]
				}
				return ""
			})
		}
	}
	return r
}

func cellOf(value *string) (c cell) {
	if value == nil {
		return cell{Null: true}
	}
	c.Text = *value
	if document := strings.TrimSpace(c.Text); len(document) > 2 && len(document) <= maxPretty &&
		(document[0] == '{' || document[0] == '[') && json.Valid([]byte(document)) {
		c.Pretty = display.Pretty(document)
	}
	if c.Pretty != "" || strings.Contains(c.Text, "\n") || utf8.RuneCountInString(c.Text) > shortText {
		short, _, _ := strings.Cut(strings.TrimSpace(c.Text), "\n")
		if runes := []rune(short); len(runes) > shortText {
			short = string(runes[:shortText]) + " …"
		}
		c.Short = short
	}
	return c
}

// idPages are the pages of ids, by the name of their column in the views.
var idPages = map[string]string{
	"dead_letter_id": "/ui/dead-letters/", "delivery_id": "/ui/deliveries/", "new_delivery_id": "/ui/deliveries/",
	"oldest_delivery_id": "/ui/deliveries/", "system_id": "/ui/events/", "operation_id": "/ui/operations/",
	"batch_id": "/ui/batches/", "topic": "/ui/topics/",
}

// hrefOf is the page of a value; other returns the value of another column in its row.
func hrefOf(column string, value *string, other func(name string) string) string {
	switch {
	case value == nil || *value == "":
		return ""
	case column == "subscription":
		if topic := other("topic"); topic != "" {
			return "/ui/subscriptions/" + url.PathEscape(topic) + "/" + url.PathEscape(*value)
		}
		return ""
	case idPages[column] != "":
		return idPages[column] + url.PathEscape(*value)
	default:
		return ""
	}
}
