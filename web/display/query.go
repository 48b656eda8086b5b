package display

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/query"
)

// ErrQuery is the error of a filter in the address that the page does not know.
var ErrQuery = errors.New("not a filter of this page")

// Params reads a page's filters from its address, and remembers the first that is wrong.
type Params struct {
	Values url.Values
	Err    error
}

// QueryOf reads the parameters of a page's address.
func QueryOf(c echo.Context) *Params { return &Params{Values: c.QueryParams()} }

// maxFilter is as long as the longest event id, type and subject that can be accepted.
const maxFilter = 4096

// Refuse notes the first parameter with a value that cannot be used.
func (q *Params) Refuse(name string) {
	if q.Err == nil {
		q.Err = fmt.Errorf("%w: %s", ErrQuery, name)
	}
}

// Text is any text that PostgreSQL can hold.
func (q *Params) Text(name string) string {
	value := q.Values.Get(name)
	if len(value) > maxFilter || !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
		q.Refuse(name)
		return ""
	}
	return value
}

// Name is a name of a topic or an event subscription, or part of one; white space around it is a slip of the hand.
func (q *Params) Name(name string) string { return strings.TrimSpace(q.Text(name)) }

// OneOf is one of some words, or none.
func (q *Params) OneOf(name string, allowed []string) string {
	value := q.Values.Get(name)
	if value != "" && !slices.Contains(allowed, value) {
		q.Refuse(name)
		return ""
	}
	return value
}

// Set reports whether there is a value.
func (q *Params) Set(name string) bool { return q.Values.Get(name) != "" }

// Number is a whole number, or nil.
func (q *Params) Number(name string) *int64 {
	value := strings.TrimSpace(q.Values.Get(name))
	if value == "" {
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		q.Refuse(name)
		return nil
	}
	return &n
}

// timeForms are what a browser's field sends, what people write, and what we show.
var timeForms = []string{
	"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02", "2006-01-02 15:04:05", "2006-01-02 15:04", time.RFC3339Nano,
}

// Time is a moment in UTC, or nil.
func (q *Params) Time(name string) *time.Time {
	value := strings.TrimSuffix(strings.TrimSpace(q.Values.Get(name)), " UTC")
	if value == "" {
		return nil
	}
	for _, form := range timeForms {
		if t, err := time.Parse(form, value); err == nil && t.Year() >= 1970 && t.Year() <= lastYear {
			return &t
		}
	}
	q.Refuse(name)
	return nil
}

// lastYear that an address may name: PostgreSQL knows later ones, but no clock of ours wrote them.
const lastYear = 9999

// PageSize is how many rows a list shows.
const PageSize = 50

// TurnOf reads which page of the list is asked for.
func TurnOf[K any](q *Params, parse func(text string) (K, bool)) query.Turn[K] {
	t := query.Turn[K]{Limit: PageSize}
	read := func(name string) *K {
		text := q.Values.Get(name)
		if text == "" {
			return nil
		}
		key, ok := parse(text)
		if !ok {
			q.Refuse(name)
			return nil
		}
		return &key
	}
	if t.After = read("after"); t.After == nil {
		t.Before = read("before")
	}
	return t
}

// ParseID reads an id that is a number.
func ParseID(text string) (int64, bool) {
	id, err := strconv.ParseInt(text, 10, 64)
	return id, err == nil && id > 0
}

// ParseUUID reads an id that is a UUID.
func ParseUUID(text string) (uuid.UUID, bool) {
	id, err := uuid.Parse(text)
	return id, err == nil && id.String() == text
}

// ParseName reads a name.
func ParseName(text string) (string, bool) { return text, len(text) <= 64 && utf8.ValidString(text) }

// ParsePair reads the key of an event subscription.
func ParsePair(text string) (query.SubscriptionKey, bool) {
	topic, name, ok := strings.Cut(text, "/")
	return query.SubscriptionKey{Topic: topic, Subscription: name}, ok && len(text) <= 129 && utf8.ValidString(text)
}

const (
	timeBytes = 8
	keyBytes  = timeBytes + 16
)

// DeadLetterPlace writes a dead letter's place as an address carries it: microseconds, as PostgreSQL keeps them, and
// the id that decides between rows of one microsecond.
func DeadLetterPlace(key query.DeadLetterPlace) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(key.DeadLetteredAt.UnixMicro()))
	return base64.RawURLEncoding.EncodeToString(append(b, key.DeadLetterID[:]...))
}

// ParseDeadLetterPlace reads what DeadLetterPlace wrote.
func ParseDeadLetterPlace(text string) (key query.DeadLetterPlace, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != keyBytes {
		return key, false
	}
	key = query.DeadLetterPlace{
		DeadLetteredAt: time.UnixMicro(int64(binary.BigEndian.Uint64(b))).UTC(), DeadLetterID: uuid.UUID(b[timeBytes:]),
	}
	return key, key.DeadLetteredAt.Year() >= 1970 && key.DeadLetteredAt.Year() <= lastYear
}

// Paging is the links below a list; "" = there is no such page.
type Paging struct {
	Newest, Newer, Older string
	// Further goes on where the look for rows ended that no index knows.
	Further string
}

// WithFurther adds the link that goes on from a place that was looked to; "" adds none.
func (l Paging) WithFurther(c echo.Context, place string) Paging {
	switch {
	case place == "":
	case c.QueryParams().Has("after"):
		l.Further, l.Newer = With(c, "before", "", "after", place), ""
	default:
		l.Further, l.Older = With(c, "before", place, "after", ""), ""
	}
	return l
}

// PagingOf makes them from the page's own address: the filters stay.
func PagingOf[T any](c echo.Context, page query.Page[T], place func(T) string) Paging {
	at := func(name, value string) string { return With(c, "before", "", "after", "", name, value) }
	links := Paging{}
	if len(page.Rows) > 0 && page.Newer {
		links.Newer = at("after", place(page.Rows[0]))
	}
	if len(page.Rows) > 0 && page.Older {
		links.Older = at("before", place(page.Rows[len(page.Rows)-1]))
	}
	if c.QueryParams().Has("before") || c.QueryParams().Has("after") {
		links.Newest = at("", "")
	}
	return links
}

// With is the page's address with some of its filters changed: name, value, name, value; "" takes one out.
func With(c echo.Context, changes ...string) string {
	return SameFilter(c, c.Request().URL.Path, changes...)
}

// SameFilter is another page's address with the filters of this one, some of them changed.
func SameFilter(c echo.Context, path string, changes ...string) string {
	values := url.Values{}
	for name, list := range c.QueryParams() {
		values[name] = list
	}
	values.Del("done")
	for i := 0; i+1 < len(changes); i += 2 {
		if changes[i+1] == "" {
			values.Del(changes[i])
		} else {
			values.Set(changes[i], changes[i+1])
		}
	}
	if len(values) == 0 {
		return path
	}
	return path + "?" + values.Encode()
}

// IDText prints the key of a list that runs by id.
func IDText(id int64) string { return strconv.FormatInt(id, 10) }

// IDOrNothing is an id as text, or "".
func IDOrNothing(id *int64) string {
	if id == nil {
		return ""
	}
	return IDText(*id)
}
