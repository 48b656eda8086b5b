package management

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"postrider/query"
	"postrider/server/api"
)

// key is how a cursor has the key of a row.
type key[K any] struct {
	parse func(string) (K, error)
	text  func(K) string
}

var (
	numberKey = key[int64]{parseNumber, numberText}
	idKey     = key[uuid.UUID]{uuid.Parse, uuid.UUID.String}
)

// newestFirst is a page of a list that runs from the newest row to the oldest. request has the parameters that the link
// to the next page keeps.
func newestFirst[R, F, T, K any](
	ctx context.Context, path string, request *R, params *api.PageParams, filter F,
	read func(context.Context, F, query.Turn[K]) (query.SearchedPage[T, K], error), keyOf func(*T) K, as key[K],
) (*api.List[T], error) {
	turn, err := readTurn(&params.Limit, params.Cursor, as.parse)
	if err != nil {
		return nil, err
	}
	page, err := read(ctx, filter, turn)
	if err != nil {
		return nil, err
	}
	list := &api.List[T]{Value: api.Shown(page.Rows)}
	after := page.SearchedTo
	if after == nil && page.Older {
		after = new(keyOf(&page.Rows[len(page.Rows)-1]))
	}
	if after != nil {
		list.NextLink = api.NextLink(path, api.QueryOf(request), as.text(*after))
	}
	return list, nil
}

// inOrder checks the ends of a time span by their names.
func inOrder(fromName string, from *time.Time, untilName string, until *time.Time) error {
	if from != nil && until != nil && !from.Before(*until) {
		return api.Invalid(fromName, "must be before %s", untilName)
	}
	return nil
}

// readTurn reads the parameters of a list that runs from the newest to the oldest. A cursor is the key of the row that
// it goes on after.
func readTurn[K any](limit *int, cursor *string, parse func(string) (K, error)) (query.Turn[K], error) {
	p, err := api.ReadPage(limit, cursor)
	if err != nil || cursor == nil {
		return query.Turn[K]{Limit: p.Limit}, err
	}
	key, err := parse(p.After)
	if err != nil {
		return query.Turn[K]{}, api.Invalid("cursor", "must be one that a nextLink had")
	}
	return query.Turn[K]{Limit: p.Limit, Before: &key}, nil
}

func parseNumber(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }

func numberText(n int64) string { return strconv.FormatInt(n, 10) }

// nextOf links to the page after one that was read: after its last row, or where its search ended. asked are the
// parameters of this page, which the link keeps; nil on the last page.
func nextOf[T, K any](
	path string, asked any, limit int, page query.SearchedPage[T, K], key func(T) K, text func(K) string,
) *string {
	switch {
	case page.SearchedTo != nil:
		return linkTo(path, asked, limit, text(*page.SearchedTo))
	case page.Older:
		return linkTo(path, asked, limit, text(key(page.Rows[len(page.Rows)-1])))
	default:
		return nil
	}
}

// linkTo is the next page's path and query; limit 0 for a list without that parameter.
func linkTo(path string, asked any, limit int, cursor string) *string {
	query := queryOf(asked)
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	query.Set("cursor", base64.RawURLEncoding.EncodeToString([]byte(cursor)))
	return new(path + "?" + query.Encode())
}

// queryOf writes parameters as they were read: those that are set, by their names in JSON.
func queryOf(asked any) url.Values {
	query, members := url.Values{}, map[string]any{}
	text, err := json.Marshal(asked)
	if err == nil {
		decoder := json.NewDecoder(strings.NewReader(string(text)))
		decoder.UseNumber()
		err = decoder.Decode(&members)
	}
	if err != nil {
		return query
	}
	for name, value := range members {
		switch value := value.(type) {
		case string:
			query.Set(name, value)
		case json.Number:
			query.Set(name, value.String())
		case bool:
			query.Set(name, strconv.FormatBool(value))
		}
	}
	return query
}

// text reads a parameter that is looked for as it is; "" for none.
func (p *problems) text(name string, given *string) string {
	text := optional(given, "")
	if !api.Storable(text) {
		p.Value(name, "holds a character that nothing stored has")
	}
	return text
}

// oneOf reads a parameter that is one of some words; "" for none.
func (p *problems) oneOf(name string, given *string, words []string) string {
	word := optional(given, "")
	if given != nil && !slices.Contains(words, word) {
		p.Value(name, "must be one of %s, not %q", strings.Join(words, ", "), api.Shorten(word))
	}
	return word
}

// span reads a stretch of time by the names of its ends.
func (p *problems) span(fromName string, from *string, untilName string, until *string) (first, last *time.Time) {
	first, last = p.moment(fromName, from), p.moment(untilName, until)
	if first != nil && last != nil && !first.Before(*last) {
		p.Value(fromName, "must be before %s", untilName)
	}
	return first, last
}

// described shows each row of a page.
func described[T, D any](rows []T, describe func(*T) D) []D {
	shown := make([]D, len(rows))
	for i := range rows {
		shown[i] = describe(&rows[i])
	}
	return shown
}

func idText(id uuid.UUID) string { return id.String() }
