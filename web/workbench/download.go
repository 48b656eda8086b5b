package workbench

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/labstack/echo/v4"

	"postrider/sqlquery"
	"postrider/web/site"
)

// writer writes the rows of a download.
type writer interface {
	begin(columns []sqlquery.Column) error
	row(values []*string) error
	end() error
}

// download runs the query of the form and sends all of its rows as a file. An error before the first row is shown on
// the page. One after it breaks the connection, so that the browser reports an incomplete file.
func (p *Pages) download(name, media string, format func(io.Writer) writer) site.Page {
	return func(ctx context.Context, c echo.Context) error {
		view, request, err := p.posted(ctx, c)
		response := c.Response()
		buffered := bufio.NewWriterSize(response, 64<<10)
		out := format(buffered)
		if err == nil {
			err = p.Queries.Stream(ctx, request, func(columns []sqlquery.Column) error {
				response.Header().Set(echo.HeaderContentType, media)
				response.Header().Set(echo.HeaderContentDisposition, `attachment; filename="`+name+`"`)
				return out.begin(columns)
			}, out.row)
		}
		if err == nil {
			if err = out.end(); err == nil {
				return buffered.Flush()
			}
		}
		if response.Committed {
			p.Site.Log.WarnContext(ctx, "download of a query ended early", "error", err)
			panic(http.ErrAbortHandler)
		}
		response.Header().Del(echo.HeaderContentDisposition)
		return p.failed(ctx, c, view, err)
	}
}

// csvWriter writes CSV as in RFC 4180. NULL is an empty field.
type csvWriter struct {
	*csv.Writer
	record []string
}

func newCSV(w io.Writer) writer { return &csvWriter{Writer: csv.NewWriter(w)} }

func (w *csvWriter) begin(columns []sqlquery.Column) error {
	for _, c := range columns {
		w.record = append(w.record, c.Name)
	}
	return w.Write(w.record)
}

func (w *csvWriter) row(values []*string) error {
	for i, value := range values {
		w.record[i] = ""
		if value != nil {
			w.record[i] = *value
		}
	}
	return w.Write(w.record)
}

func (w *csvWriter) end() error {
	w.Flush()
	return w.Error()
}

// jsonWriter writes an array with one object for each row, one in a line.
type jsonWriter struct {
	io.Writer
	keys  [][]byte
	plain []bool // the value is JSON as it is
	line  []byte
	rows  int
}

func newJSON(w io.Writer) writer { return &jsonWriter{Writer: w} }

// begin makes the keys. A second column of the same name is name_2.
func (w *jsonWriter) begin(columns []sqlquery.Column) error {
	seen := map[string]int{}
	for _, c := range columns {
		name := c.Name
		if seen[c.Name]++; seen[c.Name] > 1 {
			name = fmt.Sprintf("%s_%d", c.Name, seen[c.Name])
		}
		key, err := json.Marshal(name)
		if err != nil {
			return err
		}
		w.keys = append(w.keys, append(key, ':'))
		w.plain = append(w.plain, numberTypes[bareType(c.Type)] || c.Type == "json" || c.Type == "jsonb")
	}
	_, err := io.WriteString(w, "[")
	return err
}

func (w *jsonWriter) row(values []*string) error {
	w.line = append(w.line[:0], ",\n{"...)
	if w.rows++; w.rows == 1 {
		w.line = append(w.line[:0], "\n{"...)
	}
	for i, value := range values {
		if i > 0 {
			w.line = append(w.line, ',')
		}
		w.line = append(w.line, w.keys[i]...)
		switch {
		case value == nil:
			w.line = append(w.line, "null"...)
		case w.plain[i] && json.Valid([]byte(*value)): // not NaN or Infinity
			w.line = append(w.line, *value...)
		default:
			text, err := json.Marshal(*value)
			if err != nil {
				return err
			}
			w.line = append(w.line, text...)
		}
	}
	_, err := w.Write(append(w.line, '}'))
	return err
}

func (w *jsonWriter) end() error {
	_, err := io.WriteString(w, "\n]\n")
	return err
}
