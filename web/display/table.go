package display

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/internal/query"
)

// Table is a list with the columns that the user has chosen.
type Table struct {
	Name string
	// All are the columns to choose from, and Columns those that are shown.
	All, Columns []query.Column
	// Wrap: long texts continue on further lines.
	Wrap bool
	// Chosen: the user has chosen the columns.
	Chosen bool
	// Checked are the buttons that act on checked rows: with them, each row begins with a check-box, which the template
	// list/pick writes.
	Checked []Link
	// Order is the address of the page in the other order, the newest or the oldest row first; "" is no other order.
	Order string
	// Oldest: the oldest row is first.
	Oldest bool
	Rows   any
}

// Link is a link to another page.
type Link struct{ Href, Text string }

// columnsCookie has the chosen columns of each list.
const columnsCookie = "postrider-columns"

// wrapText is the key of Table.Wrap in the cookie and in the form.
const wrapText = "wrap"

// TableOf is the table of a list with the columns that the user has chosen.
func TableOf(c echo.Context, name string, rows any) Table {
	t := DefaultTable(name, rows)
	if keys := chosenColumns(c).Get(name); keys != "" {
		t.choose(strings.Split(keys, "."))
	}
	return t
}

// DefaultTable is the table of a list with the default columns.
func DefaultTable(name string, rows any) Table {
	t := Table{Name: name, All: columnsOf(name), Rows: rows}
	t.Columns = slices.DeleteFunc(slices.Clone(t.All), func(col query.Column) bool { return col.OffPages })
	return t
}

func (t *Table) choose(keys []string) {
	t.Wrap = slices.Contains(keys, wrapText)
	t.Columns = nil
	for i, col := range t.All {
		if i == 0 || slices.Contains(keys, col.Key) { // the first one links to the page of the row
			t.Columns = append(t.Columns, col)
		}
	}
	t.Chosen = len(keys) > 0
}

// Shows reports whether a column is shown.
func (t Table) Shows(key string) bool {
	return slices.ContainsFunc(t.Columns, func(col query.Column) bool { return col.Key == key })
}

// SQL are the shown columns in the documented view.
func (t Table) SQL() string {
	var columns []string
	for _, col := range t.Columns {
		columns = append(columns, col.SQL)
	}
	return strings.Join(columns, ", ")
}

func chosenColumns(c echo.Context) url.Values {
	cookie, err := c.Cookie(columnsCookie)
	if err != nil {
		return url.Values{}
	}
	values, err := url.ParseQuery(cookie.Value)
	if err != nil {
		return url.Values{}
	}
	return values
}

// maxCookie is what browsers store of a cookie.
const maxCookie = 4000

// ChooseColumns stores the columns of a list in the browser; without keys, the default ones are shown again. Unknown
// keys are left out.
func ChooseColumns(c echo.Context, name string, keys []string) {
	t := Table{All: columnsOf(name)}
	t.choose(keys)
	values := chosenColumns(c)
	values.Del(name)
	if t.Chosen {
		stored := make([]string, 0, len(t.Columns)+1)
		for _, col := range t.Columns {
			stored = append(stored, col.Key)
		}
		if t.Wrap {
			stored = append(stored, wrapText)
		}
		values.Set(name, strings.Join(stored, "."))
	}
	cookie := &http.Cookie{ //nolint:gosec // it holds no secret and must also work without HTTPS
		Name: columnsCookie, Value: values.Encode(), Path: "/ui/", HttpOnly: true, SameSite: http.SameSiteLaxMode,
		MaxAge: 365 * 24 * 60 * 60,
	}
	if len(values) == 0 || len(cookie.Value) > maxCookie {
		cookie.Value, cookie.MaxAge = "", -1
	}
	c.SetCookie(cookie)
}
