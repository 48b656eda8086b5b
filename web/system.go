package web

import (
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/query"
	"postrider/web/display"
)

// jobsView is what jobs.html shows.
type jobsView struct {
	Filter   query.JobFilter
	States   []share
	Kinds    []choice
	Rows     []query.JobLine
	Paging   display.Paging
	Filtered bool
}

var (
	jobStates = []string{
		"available", "running", "scheduled", "retryable", "completed", "cancelled", "discarded", "pending",
	}
	jobKinds = query.JobKinds()
)

func (p *pages) jobs(c echo.Context) error {
	q := display.QueryOf(c)
	f := query.JobFilter{State: q.OneOf("state", jobStates), Kind: q.Name("kind")}
	turn := display.TurnOf(q, display.ParseID)
	if q.Err != nil {
		return q.Err
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	found, err := p.parts.Reader.ReadJobs(ctx, f, turn)
	if err != nil {
		return err
	}
	view := jobsView{
		Filter: f, Kinds: choices(jobKinds, f.Kind), Rows: found.Rows, Filtered: f != query.JobFilter{},
		States: sharesOf(found.States,
			func(name string) string { return display.With(c, "before", "", "after", "", "state", name) }),
		Paging: display.PagingOf(c, found.Page, func(l query.JobLine) string { return display.IDText(l.ID) }),
	}
	for i := range view.States {
		view.States[i].Here = view.States[i].Name == f.State
	}
	return p.show(c, "jobs", "Jobs", true, view)
}

// storageView is what storage.html shows.
type storageView struct {
	query.Storage
	Parents []parentRow
	Largest int64
}

// parentRow is a partitioned table with its days.
type parentRow struct {
	Name    string
	Bytes   int64
	Days    []dayRow
	Ahead   int    // partitions of days to come, which are empty
	Keeps   string // the retention in words
	NextDay string // the day that is dropped next, and when
}

type dayRow struct {
	query.Partition
	Percent int
	Rows    string
}

func (p *pages) storage(c echo.Context) error {
	ctx, cancel := pageContext(c)
	defer cancel()
	found, err := p.parts.Reader.ReadStorage(ctx)
	if err != nil {
		return err
	}
	view := storageView{Storage: *found}
	view.Version, _, _ = strings.Cut(found.Version, " ") // without the packager's
	for _, part := range found.Partitions {
		view.Largest = max(view.Largest, part.Bytes)
	}
	view.Parents = p.parentsOf(found, view.Largest)
	return p.show(c, "storage", "Storage", true, view)
}

func (p *pages) parentsOf(found *query.Storage, largest int64) (parents []parentRow) {
	keeps := map[string]int{
		"events": p.retention.DeliveredDays, "delivery_history": p.retention.DeliveredDays,
		"delivery_attempts": p.retention.AttemptsDays,
	}
	for _, part := range found.Partitions {
		if len(parents) == 0 || parents[len(parents)-1].Name != part.Parent {
			parents = append(parents, parentRow{Name: part.Parent, Keeps: keptFor(keeps[part.Parent])})
		}
		parent := &parents[len(parents)-1]
		parent.Bytes += part.Bytes
		if part.Day.After(found.Today) {
			parent.Ahead++
			continue
		}
		row := dayRow{Partition: part, Rows: "not counted yet"}
		if part.Rows >= 0 {
			row.Rows = "about " + display.Grouped(part.Rows)
		}
		if largest > 0 {
			row.Percent = int(100 * part.Bytes / largest)
		}
		parent.Days = append(parent.Days, row)
		if days := keeps[part.Parent]; days > 0 { // the last that is seen is the oldest
			parent.NextDay = part.Day.Format(time.DateOnly) + " is dropped on " +
				part.Day.AddDate(0, 0, days+1).Format(time.DateOnly)
		}
	}
	return parents
}

func keptFor(days int) string {
	if days == 0 {
		return "kept for ever"
	}
	return "kept for " + display.Plural(days, "day")
}

// auditView is what audit.html shows.
type auditView struct {
	Filter   query.AuditFilter
	Rows     []query.AuditLine
	Paging   display.Paging
	Filtered bool
}

func (p *pages) audit(c echo.Context) error {
	q := display.QueryOf(c)
	f := query.AuditFilter{
		Actor: q.Name("actor"), Action: q.Name("action"), Topic: q.Name("topic"), Subscription: q.Name("subscription"),
	}
	turn := display.TurnOf(q, display.ParseID)
	if q.Err != nil {
		return q.Err
	}
	ctx, cancel := pageContext(c)
	defer cancel()
	found, err := p.parts.Reader.ReadAudit(ctx, f, turn)
	if err != nil {
		return err
	}
	return p.show(c, "audit", "Audit", true, auditView{
		Filter: f, Rows: found.Rows, Filtered: f != query.AuditFilter{},
		Paging: display.PagingOf(c, found.Page, func(l query.AuditLine) string { return display.IDText(l.AuditID) }).
			WithFurther(c, display.IDOrNothing(found.SearchedTo)),
	})
}
