package display

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"

	"github.com/labstack/echo/v4"

	"postrider/internal/query"
)

// PageSize is the number of rows of a list that a page shows.
const PageSize = 50

// TurnOf reads which page of a list the address requests.
func TurnOf[K any](f *Filter) query.Turn[K] {
	t := query.Turn[K]{Limit: PageSize}
	if t.After = decodeKey[K](f, "after"); t.After == nil {
		t.Before = decodeKey[K](f, "before")
	}
	if f.Order != "" {
		f.OneOf("", "order", "", []string{"oldest"}, "")
	}
	if f.Oldest() && t.After == nil && t.Before == nil {
		t.After = new(K) // from the beginning
	}
	return t
}

// EncodeKey writes the key of a row for an address.
func EncodeKey[K any](key K) string {
	text, err := json.Marshal(key)
	if err != nil { // impossible: keys are ids, names and times
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// decodeKey reads what EncodeKey wrote and rejects every other spelling.
func decodeKey[K any](f *Filter, name string) *K {
	text := f.values.Get(name)
	if text == "" {
		return nil
	}
	key := new(K)
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(raw, key) != nil || EncodeKey(*key) != text ||
		bytes.Contains(raw, []byte(`\u0000`)) { // PostgreSQL cannot store it
		f.Reject(name)
		return nil
	}
	return key
}

// Paging has the links below a list; "" is no such page.
type Paging struct {
	First, Newer, Older string
	// Further continues a search that ended before it found a whole page.
	Further string
	// Checked is what the search has checked by then.
	Checked string
}

// PagingOf returns the links of a page of a list. They keep its filter. With the oldest row first, the next page has
// newer rows.
func PagingOf[T, K any](
	c echo.Context, oldest bool, page query.SearchedPage[T, K], key func(*T) K,
) (links Paging) {
	at := func(name, key string) string {
		return With(c, "before", "", "after", "", "found", "", "scanned", "", name, key)
	}
	moved := c.QueryParams().Has("after") || c.QueryParams().Has("before")
	backwards := c.QueryParams().Has("after") || oldest && !moved
	page.Older, links.Checked = page.Older && (moved || !oldest), "20,000 rows"
	if len(page.Rows) > 0 && page.Newer {
		links.Newer = at("after", EncodeKey(key(&page.Rows[0])))
	}
	if len(page.Rows) > 0 && page.Older {
		links.Older = at("before", EncodeKey(key(&page.Rows[len(page.Rows)-1])))
	}
	switch {
	case page.SearchedTo == nil:
	case backwards:
		links.Further, links.Newer = at("after", EncodeKey(*page.SearchedTo)), ""
	default:
		links.Further, links.Older = at("before", EncodeKey(*page.SearchedTo)), ""
	}
	if oldest {
		links.Newer, links.Older = links.Older, links.Newer
	}
	if moved {
		links.First = at("", "")
	}
	return links
}

// With is the page's address with some parameters changed: name, value, name, value. An empty value removes one.
func With(c echo.Context, changes ...string) string {
	return SameFilter(c, c.Request().URL.Path, changes...)
}

// SameFilter is another page's address with the parameters of this one, changed as by With.
func SameFilter(c echo.Context, path string, changes ...string) string {
	return address(c.QueryParams(), path, changes...)
}

func address(parameters url.Values, path string, changes ...string) string {
	values := url.Values{}
	maps.Copy(values, parameters)
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
