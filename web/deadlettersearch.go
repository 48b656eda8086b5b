package web

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/web/display"
)

var (
	// notOfPage removes the parameters of one page from an address, and notOfFilter those that are no filter.
	notOfPage   = []string{"before", "", "after", "", "found", "", "scanned", "", "slice", ""}
	notOfFilter = append([]string{"order", ""}, notOfPage...)
)

// searchSlices is how many requests of a second the page makes before the user has to continue the search.
const searchSlices = 5

// contentSearch is the progress of a search of dead letters by their content.
type contentSearch struct {
	// Problem is what is wrong with the search; "" if nothing is.
	Problem string
	// Running reports that it ended before the list. Scanned dead letters have been checked, back to ScannedTo.
	Running   bool
	Scanned   int64
	ScannedTo time.Time
	// Further continues it. The page itself requests Next, "" after some seconds.
	Further, Next string
}

// begunSearch reads what earlier requests of a search have found, and how many they checked.
func begunSearch(f *display.Filter) (ids []uuid.UUID, scanned int64) {
	fields := f.Fields
	defer func() { f.Fields = fields }() // a new search begins anew
	if text := f.Text("", "found", ""); text != "" {
		for id := range strings.SplitSeq(text, ",") {
			parsed, err := uuid.Parse(id)
			if err != nil || len(ids) >= display.PageSize {
				f.Reject("found")
				return nil, 0
			}
			ids = append(ids, parsed)
		}
	}
	if n := f.Number("", "scanned", ""); n != nil {
		scanned = *n
	}
	return ids, scanned
}

// searchProblem returns what is wrong with a search; "" for other errors.
func searchProblem(err error) string {
	var search *query.SearchError
	var filter *postgres.FunctionError
	switch {
	case errors.As(err, &search):
		return "Search " + search.Error()
	case errors.As(err, &filter):
		return filter.Message
	}
	return ""
}

// continued is the progress of a search, and how it continues. It keeps what was found for the page.
func continued(c echo.Context, found *query.DeadLetterPage, scanned int64) (s contentSearch) {
	if found.SearchedTo == nil {
		return s
	}
	ids := make([]string, len(found.Rows))
	for i, l := range found.Rows {
		ids[i] = l.DeadLetterID.String()
	}
	direction := "before"
	if c.QueryParams().Has("after") || c.QueryParam("order") == "oldest" && !c.QueryParams().Has("before") {
		direction = "after"
	}
	slice, _ := strconv.Atoi(c.QueryParam("slice"))
	at := func(slice string) string {
		return display.With(c, append(slices.Clip(notOfPage), direction, display.EncodeKey(*found.SearchedTo), "found",
			strings.Join(ids, ","), "scanned", strconv.FormatInt(scanned, 10), "slice", slice)...)
	}
	s = contentSearch{Running: true, Scanned: scanned, ScannedTo: found.SearchedTo.DeadLetteredAt, Further: at("")}
	if slice >= 0 && slice < searchSlices-1 {
		s.Next = at(strconv.Itoa(slice + 1))
	}
	return s
}
