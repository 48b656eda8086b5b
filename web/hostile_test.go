package web_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/query"
	"postrider/web"
	"postrider/web/display"
)

var (
	readForm  = regexp.MustCompile(`(?s)<form[^>]*method="get".*?</form>`)
	fieldName = regexp.MustCompile(` name="([a-zA-Z]+)"`)
	pathParam = regexp.MustCompile(`:[a-z]+`)
)

// No address makes a page fail, whatever its path and its parameters are.
func TestHostileAddresses(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	b := setup(t, func(o *web.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	b.hook(t)
	b.insert(t, deadLetter{at: time.Now()})
	request := func(address string) int {
		response := b.request(http.MethodGet, address)
		require.Less(t, response.Code, 500, "%.200s\n%s", address, &log)
		return response.Code
	}
	long := strings.Repeat("a", 5000)
	values := []string{
		"-1", "99999999999999999999", long, "0000-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00",
	}
	cursors := []string{
		"-1", display.EncodeKey(int64(-1)), display.EncodeKey("é"), display.EncodeKey(query.DeadLetterPlace{}),
		display.EncodeKey(time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)), display.EncodeKey(time.Time{}),
		display.EncodeKey(query.DeadLetterPlace{DeadLetteredAt: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}),
	}
	for _, route := range b.echo.Routes() {
		if route.Method != http.MethodGet || strings.HasSuffix(route.Path, "*") || strings.HasSuffix(route.Path, "/stream") {
			continue
		}
		for _, wrong := range []string{"%00", "a%00", "%ff", "%00%6F", long, "-1", "0", "99999999999999999999"} {
			if pathParam.MatchString(route.Path) {
				status := request(pathParam.ReplaceAllString(route.Path, wrong))
				require.Contains(t, []int{http.StatusNotFound, http.StatusSeeOther}, status, "%s %.20s", route.Path, wrong)
			}
		}
		for _, wrong := range []string{"a=%00", "%00=a", "a=%ff", "a=%zz"} {
			if !pathParam.MatchString(route.Path) {
				require.Equal(t, http.StatusBadRequest, request(route.Path+"?"+wrong), "%s %s", route.Path, wrong)
			}
		}
		page := pathParam.ReplaceAllStringFunc(route.Path, func(name string) string {
			return map[string]string{":topic": "orders", ":subscription": "billing", ":name": "ga-2021"}[name]
		})
		names := []string{"before", "from"}
		if strings.HasPrefix(page, "/ui/de") { // lists with searches and bulk operations
			names = append(names, "after", "found", "scanned", "slice", "until", "id")
		}
		for _, form := range readForm.FindAllString(b.request(http.MethodGet, page).Body.String(), -1) {
			for _, name := range fieldName.FindAllStringSubmatch(form, -1) {
				names = append(names, name[1])
			}
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			tried := values
			if name == "before" || name == "after" {
				tried = cursors
			}
			for _, value := range tried {
				request(page + "?" + url.Values{name: {value}}.Encode())
			}
		}
	}
	require.NotContains(t, log.String(), "level=ERROR")
}

// No form changes anything with a value that PostgreSQL cannot hold, whatever its address is.
func TestHostileForms(t *testing.T) {
	t.Parallel()
	b := setup(t)
	posts := 0
	for _, route := range b.echo.Routes() {
		if route.Method != http.MethodPost || strings.HasSuffix(route.Path, "*") || route.Path == "/ui" {
			continue
		}
		posts++
		for body, want := range map[string]string{
			"a=%00": `"a" must be UTF-8 without the character 0`, "%ff=a": `"\xff" must be UTF-8 without the character 0`,
			"b=1&a=1&a=%ff": `"a" must be UTF-8 without the character 0`, "a=%zz": "not encoded as in a form",
		} {
			response := b.request(http.MethodPost, pathParam.ReplaceAllString(route.Path, "orders"),
				func(r *http.Request) {
					r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
					r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
				})
			require.Equal(t, http.StatusBadRequest, response.Code, "%s %s", route.Path, body)
			require.Contains(t, text(response.Body.String()), want, "%s %s", route.Path, body)
		}
	}
	require.Greater(t, posts, 30)
}

// A page says what is wrong with a search. server has the REST API's responses.
func TestInvalidSearch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for search, want := range map[string]string{
		strings.Repeat("a", 4097): "earch at character 4097: a search has at most 4096 bytes",
		"data.a = 1e131073":       "earch at character 10: a number has at most 131072 digits",
		"data.a == 1":             "earch at character 8: == is not an operator; use =",
		"error ~ (a":              "earch at character 9: error ~: the value is not a valid regular expression: (a",
	} {
		parameter := "?search=" + url.QueryEscape(search)
		for _, path := range []string{"", "/purge", "/redeliver", "/repair"} {
			response := b.request(http.MethodGet, "/ui/dead-letters"+path+parameter)
			require.Equal(t, path == "", response.Code == http.StatusOK, response.Body)
			require.Contains(t, text(response.Body.String()), want, path)
		}
	}
}
