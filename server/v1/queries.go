package v1

import (
	"context"

	"postrider/internal/sqlquery"
	"postrider/server/api"
)

// ListQueries responds to GET /v1/queries.
func (m *Handlers) ListQueries(ctx context.Context, r *api.PageParams) (*api.List[sqlquery.Saved], error) {
	read := func(ctx context.Context, after string, limit int) (page []sqlquery.Saved, err error) {
		all, err := m.Parts.SavedQueries.List(ctx)
		for _, q := range all {
			if q.Name > after && len(page) < limit {
				page = append(page, q)
			}
		}
		return page, err
	}
	return api.ListAfter(ctx, "/v1/queries", r, read, func(q sqlquery.Saved) string { return q.Name })
}

// QueryPath names a saved query.
type QueryPath struct {
	Name string `path:"query" example:"by-topic"`
}

// QuerySpec has the settings of a saved query.
type QuerySpec struct {
	Description string `json:"description,omitempty"`
	SQL         string `json:"sql"`
	Shared      bool   `json:"shared,omitempty" default:"false"`
}

type putQueryRequest struct {
	QueryPath
	Body QuerySpec
}

// PutQuery responds to PUT /v1/queries/{query}.
func (m *Handlers) PutQuery(ctx context.Context, r *putQueryRequest) (*api.Put[sqlquery.Saved], error) {
	created, err := m.Parts.SavedQueries.Put(ctx, sqlquery.Saved{
		Name: r.Name, Description: r.Body.Description, SQL: r.Body.SQL, Shared: r.Body.Shared,
	})
	if err != nil {
		return nil, err
	}
	q, err := m.Parts.SavedQueries.Get(ctx, r.Name)
	return &api.Put[sqlquery.Saved]{Body: q, Created: created}, err
}

// GetQuery responds to GET /v1/queries/{query}.
func (m *Handlers) GetQuery(ctx context.Context, r *QueryPath) (*sqlquery.Saved, error) {
	return m.Parts.SavedQueries.Get(ctx, r.Name)
}

// DeleteQuery responds to DELETE /v1/queries/{query}.
func (m *Handlers) DeleteQuery(ctx context.Context, r *QueryPath) (*api.NoContent, error) {
	return &api.NoContent{}, m.Parts.SavedQueries.Delete(ctx, r.Name)
}

// RunSQLSpec is a query that is not saved.
type RunSQLSpec struct {
	SQL   string   `json:"sql"`
	Args  []string `json:"args,omitempty"`
	Limit *int     `json:"limit,omitempty" minimum:"1" maximum:"1000" default:"1000"`
	Plan  bool     `json:"plan,omitempty" default:"false"`
}

// RunQuerySpec are the arguments of a saved query.
type RunQuerySpec struct {
	Args  map[string]string `json:"args,omitempty"`
	Limit *int              `json:"limit,omitempty" minimum:"1" maximum:"1000" default:"1000"`
	Plan  bool              `json:"plan,omitempty" default:"false"`
}

// QueryResult has the first rows of a result, or the plan.
type QueryResult struct {
	Columns          []sqlquery.Column `json:"columns"`
	Rows             [][]*string       `json:"rows"`
	More             bool              `json:"more"`
	TookMilliseconds int64             `json:"tookMilliseconds"`
	Plan             *string           `json:"plan"`
}

// RunSQL responds to POST /v1/queries/run.
func (m *Handlers) RunSQL(ctx context.Context, r *api.Body[RunSQLSpec]) (*QueryResult, error) {
	return m.run(ctx, sqlquery.Request{SQL: r.Body.SQL, Args: r.Body.Args}, r.Body.Limit, r.Body.Plan)
}

type runQueryRequest struct {
	QueryPath
	Body RunQuerySpec `required:"false"`
}

// RunQuery responds to POST /v1/queries/{query}/run.
func (m *Handlers) RunQuery(ctx context.Context, r *runQueryRequest) (*QueryResult, error) {
	saved, err := m.Parts.SavedQueries.Get(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	q, err := saved.Request(r.Body.Args)
	if err != nil {
		return nil, err
	}
	return m.run(ctx, q, r.Body.Limit, r.Body.Plan)
}

func (m *Handlers) run(ctx context.Context, q sqlquery.Request, limit *int, plan bool) (*QueryResult, error) {
	if limit != nil {
		if q.MaxRows = *limit; q.MaxRows < 1 || q.MaxRows > sqlquery.MaxRows {
			return nil, api.Invalid("limit", "must be 1 to %d", sqlquery.MaxRows)
		}
	}
	if plan {
		text, err := m.Parts.Queries.Plan(ctx, q)
		return &QueryResult{Columns: []sqlquery.Column{}, Rows: [][]*string{}, Plan: &text}, err
	}
	result, err := m.Parts.Queries.Run(ctx, q)
	if err != nil {
		return nil, err
	}
	return &QueryResult{
		Columns: result.Columns, Rows: result.Rows, More: result.More, TookMilliseconds: result.Took.Milliseconds(),
	}, nil
}
