package web

import (
	"context"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/query"
	"postrider/web/display"
	"postrider/web/site"
)

type jobsView struct {
	site.List[query.JobLine]
	States []share
}

var jobStates = []string{
	"available", "running", "scheduled", "retryable", "completed", "cancelled", "discarded", "pending",
}

func (p *pages) jobs(ctx context.Context, c echo.Context) error {
	f := display.FilterOf(c)
	filter := query.JobFilter{
		State: f.OneOf("", "state", "", jobStates, ""), Kind: f.Suggest("Kind", "kind", "", query.JobKinds()),
	}
	var found *query.Jobs
	read := func(
		ctx context.Context, filter query.JobFilter, t query.Turn[int64],
	) (_ query.SearchedPage[query.JobLine, int64], err error) {
		found, err = p.Parts.Reader.ReadJobs(ctx, filter, t)
		return found.SearchedPage, err
	}
	list, err := site.ListOf(ctx, c, "job", f, filter, read, func(l *query.JobLine) int64 { return l.ID })
	if err != nil {
		return err
	}
	view := jobsView{List: list, States: sharesOf(found.States, func(name string) string {
		return display.With(c, "before", "", "after", "", "state", name)
	})}
	for i := range view.States {
		view.States[i].Here = view.States[i].Name == filter.State
	}
	return p.Show(c, "jobs", "Jobs", true, view)
}

func (p *pages) audit(ctx context.Context, c echo.Context) error {
	f := display.FilterOf(c)
	filter := query.AuditFilter{
		Actor: f.Name("Actor", "actor", "actor = ?"), Action: f.OneOf("Action", "action", "action = ?", query.AuditActions, ""),
	}
	filter.Topic, filter.Subscription = owner(f)
	filter.From, filter.To = f.Span("at", p.Now())
	f.View, f.Order = "audit", "audit_id desc"
	list, err := site.ListOf(ctx, c, "entry", f, filter, p.Parts.Reader.ReadAudit,
		func(l *query.AuditLine) int64 { return l.AuditID })
	return p.ShowList(c, "audit", "Audit", list, err)
}

type storageView struct {
	query.Storage
	Parents []parentTable
	Largest int64 // the size of the largest partition in bytes
}

// parentTable is a partitioned table.
type parentTable struct {
	Name    string
	Bytes   int64
	Days    []query.Partition
	Ahead   int        // partitions for future days
	Keeps   int        // retention in days; 0 is forever
	Oldest  *time.Time // the day that is dropped next; nil if none
	Dropped time.Time  // when Oldest is dropped
}

func (p *pages) storage(ctx context.Context, c echo.Context) error {
	found, err := p.Parts.Reader.ReadStorage(ctx)
	if err != nil {
		return err
	}
	view := storageView{Storage: *found}
	view.Version, _, _ = strings.Cut(found.Version, " ") // without the packager's suffix
	keeps := map[string]int{
		"events": p.Retention.DeliveredDays, "delivery_history": p.Retention.DeliveredDays,
		"delivery_attempts": p.Retention.AttemptsDays,
	}
	for _, part := range found.Partitions {
		view.Largest = max(view.Largest, part.Bytes)
		if len(view.Parents) == 0 || view.Parents[len(view.Parents)-1].Name != part.Parent {
			view.Parents = append(view.Parents, parentTable{Name: part.Parent, Keeps: keeps[part.Parent]})
		}
		parent := &view.Parents[len(view.Parents)-1]
		parent.Bytes += part.Bytes
		if part.Day.After(found.Today) {
			parent.Ahead++
		} else {
			parent.Days = append(parent.Days, part)
		}
		if parent.Keeps > 0 && len(parent.Days) > 0 {
			parent.Oldest, parent.Dropped = &part.Day, part.Day.AddDate(0, 0, parent.Keeps+1)
		}
	}
	return p.Show(c, "storage", "Storage", true, view)
}
