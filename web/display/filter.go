package display

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
)

// ErrQuery is the error of a parameter with an invalid value.
var ErrQuery = errors.New("invalid filter")

// Filter reads the parameters of a page. Each method that reads one adds a field to the page's filter form, hidden if
// it has no label. If the parameter is set, its condition is added to the equivalent SQL: "?" stands for its value.
type Filter struct {
	Path   string // of the page
	Fields []Field
	// Set reports that the address has any of the parameters.
	Set bool
	// Err is the error of the first parameter with an invalid value.
	Err error
	// View is the documented view with the same rows, and Order its order. "" is no view.
	View, Order string
	// Columns are those of the view that the page shows. Default: all.
	Columns string
	// Ranges are the times to choose from, of a page with a filter by time.
	Ranges []RangeLink
	// Groups are the parts of a list to choose from, such as the open ones.
	Groups []RangeLink
	values url.Values
	where  []string
}

// Field is a field of a filter form: an input, or a select if it has options.
type Field struct {
	Label, Name, Kind, Value, Placeholder string
	Options                               []string
	Required                              bool // a select without an option for all
}

// FilterOf reads the parameters of a page's address.
func FilterOf(c echo.Context) *Filter {
	return &Filter{Path: c.Request().URL.Path, values: c.QueryParams()}
}

// FilterOfForm reads the fields of a form.
func FilterOfForm(values url.Values) *Filter { return &Filter{values: values} }

// maxFilter is the length in bytes of the longest event id, type and subject that publishing accepts.
const maxFilter = 4096

// Reject records that a parameter has an invalid value.
func (f *Filter) Reject(name string) {
	if f.Err == nil {
		f.Err = fmt.Errorf("%w: %s", ErrQuery, name)
	}
}

// RejectOthers rejects the first parameter of the address, by name, that is neither a field nor one of these.
func (f *Filter) RejectOthers(known ...string) {
	for _, field := range f.Fields {
		known = append(known, field.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		if !slices.Contains(known, name) {
			f.Reject(Visible(name) + " is no parameter of this page")
		}
	}
}

func (f *Filter) add(field Field, condition, value string) {
	f.Fields = append(f.Fields, field)
	f.Set = f.Set || value != ""
	if condition != "" && value != "" {
		f.where = append(f.where, strings.ReplaceAll(condition, "?", QuoteSQL(value)))
	}
}

// Text reads any text that PostgreSQL can store.
func (f *Filter) Text(label, name, condition string) string {
	return f.text(label, name, condition, f.values.Get(name))
}

// Search reads a search, of any length: query.ParseSearch returns what is wrong with it. The empty field shows an
// example.
func (f *Filter) Search(label, name, example string) string {
	value := f.values.Get(name)
	f.add(Field{Label: label, Name: name, Kind: "search", Value: value, Placeholder: example}, "", value)
	return value
}

// Name reads a name, or a part of one, and trims white space.
func (f *Filter) Name(label, name, condition string) string {
	return f.text(label, name, condition, strings.TrimSpace(f.values.Get(name)))
}

func (f *Filter) text(label, name, condition, value string) string {
	if len(value) > maxFilter {
		f.Reject(name)
		value = ""
	}
	f.add(Field{Label: label, Name: name, Kind: "search", Value: value}, condition, value)
	return value
}

// Suggest reads a name that the form offers to select.
func (f *Filter) Suggest(label, name, condition string, words []string) string {
	value := f.Name(label, name, condition)
	if value != "" && !slices.Contains(words, value) {
		words = append(slices.Clip(words), value)
	}
	f.Fields[len(f.Fields)-1].Options = words
	return value
}

// OneOf reads one of the words, or returns fallback if the address has none.
func (f *Filter) OneOf(label, name, condition string, words []string, fallback string) string {
	value := f.values.Get(name)
	if value != "" && !slices.Contains(words, value) {
		f.Reject(name)
		value = ""
	}
	field := Field{Label: label, Name: name, Value: value, Options: words, Required: fallback != ""}
	if value == "" {
		field.Value = fallback
	}
	f.add(field, condition, value)
	return field.Value
}

// Group reads which part of a list is shown: one of the words, fallback if the address has none, or "" for all.
func (f *Filter) Group(name, condition string, words []string, fallback string) string {
	const all = "all"
	words = append(slices.Clip(words), all)
	given := f.values.Get(name)
	value := cmp.Or(given, fallback)
	if !slices.Contains(words, value) {
		f.Reject(name)
	}
	for _, word := range words {
		href := address(f.values, f.Path, "before", "", "after", "", name, word)
		f.Groups = append(f.Groups, RangeLink{strings.ToUpper(word[:1]) + word[1:], href, word == value})
	}
	f.Fields = append(f.Fields, Field{Name: name, Value: given})
	f.Set = f.Set || given != "" && given != all
	if value == all {
		return ""
	}
	f.Where(strings.ReplaceAll(condition, "?", QuoteSQL(value)))
	return value
}

// Check reports whether a parameter is set.
func (f *Filter) Check(label, name, condition string) bool {
	value := f.values.Get(name)
	f.add(Field{Label: label, Name: name, Kind: "checkbox", Value: value}, condition, value)
	return value != ""
}

// Number reads a whole number, 0 or greater; nil if the address has none.
func (f *Filter) Number(label, name, condition string) *int64 {
	value := strings.TrimSpace(f.values.Get(name))
	if value == "" {
		f.add(Field{Label: label, Name: name}, "", "")
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		f.Reject(name)
		return nil
	}
	f.add(Field{Label: label, Name: name, Value: value}, condition, value)
	return &n
}

// timeForms are what a browser's field sends, what users write and what the pages show.
var timeForms = []string{
	"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02", "2006-01-02 15:04:05", "2006-01-02 15:04", time.RFC3339Nano,
}

// Time reads a time in UTC; nil if the address has none.
func (f *Filter) Time(label, name, condition string) *time.Time {
	value := strings.TrimSuffix(strings.TrimSpace(f.values.Get(name)), " UTC")
	field := Field{Label: label, Name: name, Kind: "datetime-local"}
	if value == "" {
		f.add(field, "", "")
		return nil
	}
	for _, form := range timeForms {
		t, err := time.Parse(form, value)
		if t = t.UTC(); err == nil && t.Year() >= 1970 && t.Year() <= 9999 {
			field.Value = t.Format("2006-01-02T15:04")
			f.add(field, condition, t.Format("2006-01-02 15:04:05.999999Z"))
			return &t
		}
	}
	f.Reject(name)
	return nil
}

// quickSpans are the spans of time to choose from.
var quickSpans = []struct {
	name, text string
	span       time.Duration
}{
	{"15m", "15 min", 15 * time.Minute},
	{"1h", "1 h", time.Hour},
	{"24h", "24 h", 24 * time.Hour},
	{"7d", "7 d", 7 * 24 * time.Hour},
}

// Span reads the time of a column of the view: the parameters from and to, or else within, which ends now.
func (f *Filter) Span(column string, now time.Time) (from, to *time.Time) {
	from, to = f.Time("From (UTC)", "from", column+" >= ?"), f.Time("To (UTC)", "to", column+" < ?")
	names, within := []string{}, ""
	for _, quick := range quickSpans {
		names = append(names, quick.name)
	}
	if from == nil && to == nil {
		within = f.OneOf("", "within", "", names, "")
	}
	for _, quick := range quickSpans {
		if quick.name == within {
			from = new(now.Add(-quick.span))
			f.where = append(f.where, fmt.Sprintf("%s >= now() - interval '%d minutes'", column, quick.span/time.Minute))
		}
		f.Ranges = append(f.Ranges, f.rangeLink(quick.text, quick.name, quick.name == within))
	}
	f.Ranges = append(f.Ranges, f.rangeLink("All", "", from == nil && to == nil))
	return from, to
}

// Within reads the parameter within, a span of time that ends now.
func (f *Filter) Within(spans map[string]time.Duration, names []string, fallback string) time.Duration {
	within := f.OneOf("", "within", "", names, fallback)
	for _, name := range names {
		f.Ranges = append(f.Ranges, f.rangeLink(Span(spans[name]), name, name == within))
	}
	return spans[within]
}

func (f *Filter) rangeLink(text, name string, here bool) RangeLink {
	href := address(f.values, f.Path, "before", "", "after", "", "from", "", "to", "", "within", name)
	return RangeLink{text, href, here}
}

// Where adds a condition to the equivalent SQL.
func (f *Filter) Where(condition string) { f.where = append(f.where, condition) }

// Oldest reports whether the page requests the oldest row first.
func (f *Filter) Oldest() bool { return f.Order != "" && f.values.Get("order") == "oldest" }

// SQL is the statement that lists the rows of the page; "" without a view.
func (f *Filter) SQL() string {
	if f.View == "" {
		return ""
	}
	columns := "*"
	if f.Columns != "" {
		columns = f.Columns + "\n "
	}
	statement := "select " + columns + " from postrider." + f.View
	if len(f.where) > 0 {
		statement += "\n where " + strings.Join(f.where, "\n   and ")
	}
	order := f.Order
	if f.Oldest() {
		order = strings.ReplaceAll(order, " desc", "")
	}
	return statement + "\n order by " + order + " limit " + strconv.Itoa(PageSize)
}

// QuoteSQL writes a text as an SQL literal.
func QuoteSQL(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
