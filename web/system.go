package web

import (
	"context"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/internal/query"
	"postrider/web/display"
	"postrider/web/site"
)

type jobsView struct {
	site.List[query.JobLine]
	States []display.Share
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
	view := jobsView{List: list, States: display.SharesOf(found.States, func(name string) string {
		return display.With(c, "before", "", "after", "", "state", name)
	})}
	for i := range view.States {
		view.States[i].Here = view.States[i].Name == filter.State
	}
	return p.Show(c, "jobs", "Jobs", true, view)
}

func (p *pages) audit(ctx context.Context, c echo.Context) error {
	f := display.FilterOf(c)
	var filter query.AuditFilter
	f.Read(&filter, p.Now())
	f.View, f.Order = "audit", "audit_id desc"
	list, err := site.ListOf(ctx, c, "entry", f, filter, p.Parts.Reader.ReadAudit,
		func(l *query.AuditLine) int64 { return l.AuditID })
	return p.ShowList(c, "audit", "Audit", list, err)
}

type storageView struct {
	query.Storage
	Groups  []display.StorageGroup
	Largest int64 // the size of the largest group in bytes
}

func (p *pages) storage(ctx context.Context, c echo.Context) error {
	found, err := p.Parts.Reader.ReadStorage(ctx)
	if err != nil {
		return err
	}
	view := storageView{Storage: *found, Groups: display.StorageGroupsOf(found, map[string]int{
		"events": p.Retention.DeliveredDays, "delivery_history": p.Retention.DeliveredDays,
		"delivery_attempts": p.Retention.AttemptsDays,
	})}
	view.Version, _, _ = strings.Cut(found.Version, " ") // without the packager's suffix
	for _, group := range view.Groups {
		view.Largest = max(view.Largest, group.Bytes)
	}
	return p.Show(c, "storage", "Storage", true, view)
}
