package web_test

import (
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// oneByOne lets a search find one dead letter in a request, and check a thousand.
const oneByOne = `CREATE OR REPLACE FUNCTION postrider_internal.find_dead_letters(filter jsonb, after_at timestamptz,
	after_id uuid, ascending boolean, enough integer, most integer, scan_limit integer, time_limit interval,
	OUT ids uuid[], OUT scanned bigint, OUT reached_at timestamptz, OUT reached_id uuid, OUT condition text)
	LANGUAGE sql STABLE AS $$
	SELECT coalesce(array_agg(l.id), '{}'), 1000, min(l.dead_lettered_at), (array_agg(l.id))[1], 'true'
	  FROM (SELECT * FROM postrider_internal.dead_letters WHERE (after_at IS NULL OR dead_lettered_at < after_at)
	         ORDER BY dead_lettered_at DESC LIMIT 1) l $$`

// further is the link that continues a search.
var further = regexp.MustCompile(`href="([^"]+)">Search further`)

func searchPage(search string) string { return "/ui/dead-letters?search=" + url.QueryEscape(search) }

func (b *dashboard) searchable(t *testing.T) {
	t.Helper()
	at := time.Now().Add(-time.Hour)
	for i, id := range []string{"first", "second", "third"} {
		b.insert(t, deadLetter{
			at: at.Add(time.Duration(i) * time.Minute), subject: id, body: `{"data":{"order":{"id":` + `"` + id + `"}}}`,
		})
	}
}

func TestSearchOnThePage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.searchable(t)
	page := b.page(t, searchPage(`data.order.id = "second"`))
	require.Contains(t, text(page), "1 match")
	require.Contains(t, text(page), "Redeliver all …")
	require.Contains(t, b.page(t, "/ui/dead-letters"), `placeholder="data.order.id = 42 error ~ &#34;currency&#34;"`)
	require.Contains(t, page, "data @&gt; &#39;{&#34;order&#34;: {&#34;id&#34;: &#34;second&#34;}}&#39;", "the SQL")
	require.NotContains(t, page, "Search further")
	require.NotContains(t, page, `hx-trigger="every 5s"`, "a search is not repeated")
	require.Contains(t, text(b.page(t, searchPage("data.order.id = 7"))), "No dead letter matches the filter.")

	require.Contains(t, text(b.page(t, searchPage("data.order.id ="))),
		"Search at character 16: data.order.id = has no value after it; for example: data.order.id = 42")
	require.Contains(t, text(b.page(t, searchPage("error ~ (a"))),
		"filter.match[0].value is not a valid regular expression: (a: parentheses () not balanced")

	page = text(b.page(t, strings.Replace(searchPage(`data.order.id != "second"`), "?", "/purge?", 1)))
	require.Contains(t, page, "2 dead letters match")
	require.Contains(t, page, `data.order.id != "second"`)
}

// Without JavaScript a link continues a search. The page keeps what was found.
func TestSearchContinues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.searchable(t)
	_, err := b.pool.Exec(t.Context(), oneByOne)
	require.NoError(t, err)
	path := searchPage("order")
	for _, want := range []string{
		"At least 1 match Checked 1,000", "At least 2 match Checked 2,000", "At least 3 match Checked 3,000",
	} {
		page := b.page(t, path)
		for part := range strings.SplitSeq(want, " Checked") {
			require.Contains(t, text(page), part)
		}
		path = html.UnescapeString(further.FindStringSubmatch(page)[1])
	}
	page := text(b.page(t, path))
	require.Contains(t, page, "3 match")
	require.NotContains(t, page, "Search further")
	require.Regexp(t, "third.*second.*first", page)
	require.Equal(t, 400, b.request("GET", "/ui/dead-letters?search=x&found=none").Code)
}
